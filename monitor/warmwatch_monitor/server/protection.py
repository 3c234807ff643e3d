"""The protection in force, from the files of ``--web-config``; re-read when they change.

``web_config`` parses the file. A change that cannot be used, or would remove TLS or authentication,
has no effect. It is this source's error until the file is mended.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import ssl
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from warmwatch_monitor.errors import SourceError, UsageError
from warmwatch_monitor.server.credentials import Client, Credentials, Passwords
from warmwatch_monitor.server.web_config import (
    TlsFiles,
    TokenEntry,
    WebConfig,
    WebConfigError,
    parse,
)

_SHORTEST_TOKEN = 16
_LONGEST_FILE = 1 << 20

Seen = tuple[tuple[str, tuple[int, ...]], ...]


class Rules(Struct, frozen=True, kw_only=True):
    """What a connection had to present when it began. ``client_ca``: the digest of that file."""

    verify: ssl.VerifyMode
    oldest: ssl.TLSVersion
    client_ca: str | None = None


class Protection(Struct, frozen=True, kw_only=True):
    """How connections are protected, and the known clients; ``None`` if every client may read.

    ``rules`` are those of ``tls``: a renewed certificate does not change them.
    """

    tls: ssl.SSLContext | None = None
    rules: Rules | None = None
    credentials: Credentials | None = None

    @property
    def authenticates(self) -> bool:
        """Whether every answer requires credentials."""
        certificates = self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED
        return bool(self.credentials) or certificates


OPEN = Protection()


class ProtectionFiles:
    """Follows the file at ``path`` and the files it names. Any thread may read ``current``."""

    def __init__(self, path: str, log: Callable[[str], None]) -> None:
        self._path, self._log = path, log
        self._passwords = Passwords()
        self._error: str | None = None
        self.current = OPEN
        try:
            self._seen, self.current = self._load()
        except WebConfigError as error:
            why = str(error).removeprefix(f"{path}: ")  # it names the file that it is about
            raise UsageError(f"--web-config: {path}: {why}") from None

    def reload(self) -> Protection:
        """The protection from now on. Raises SourceError for a rejected change."""
        if self._error is None and self._seen == _seen(name for name, _ in self._seen):
            return self.current
        try:
            seen, found = self._load()
            _refuse_less(self.current, found)
        except WebConfigError as error:
            message = f"{self._path}: {error}; what held before this change still holds"
            if message != self._error:
                self._log(message)
            self._error = message
            raise SourceError(message) from None
        if seen != self._seen:
            self._log(f"{self._path}: read again, and in use")
        self._seen, self.current, self._error = seen, found, None
        return found

    def leave(self) -> None:
        """End all waits for a password check."""
        self._passwords.leave()

    def _load(self) -> tuple[Seen, Protection]:
        # Before reading, so that the next call notices a change meanwhile.
        before = _seen([self._path])
        config = parse(_read(self._path))
        base = Path(self._path).parent
        named = [str(base / name) for name in _named(config)]
        seen = (*before, *_seen(named))
        tokens = _clients(config.tokens, base)
        credentials = Credentials(config.users, tokens.items(), self._passwords)
        return seen, Protection(
            tls=_context(config.tls, base) if config.tls else None,
            rules=_rules(config.tls, base) if config.tls else None,
            credentials=credentials if credentials else None,
        )


def _named(config: WebConfig) -> list[str]:
    tls = config.tls
    files = [tls.cert, tls.key, *([tls.client_ca] if tls.client_ca else [])] if tls else []
    return [*files, *(token.file for token in config.tokens if token.file)]


def _clients(tokens: Iterable[TokenEntry], base: Path) -> dict[str, Client]:
    clients: dict[str, Client] = {}
    for token in tokens:
        digest = token.sha256
        if token.file is not None:
            digest = hashlib.sha256(_token(str(base / token.file)).encode()).hexdigest()
        assert digest is not None, "a token has a file or a digest"
        client = Client(name=token.name, owner_uid=_uid(token.user))
        before = clients.setdefault(digest, client)
        if before.owner_uid != client.owner_uid:
            raise WebConfigError(
                f"{before.name} and {client.name} hold the same token for different users"
            )
    return clients


def _uid(user: str | int | None) -> int | None:
    if user is None or isinstance(user, int):
        return user
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):  # ValueError: an invalid name, as with a null character
        raise WebConfigError(
            f"bearer_tokens.user: no user is named {user!r} here; write the uid"
        ) from None


def _refuse_less(before: Protection, after: Protection) -> None:
    if (before.tls is None) != (after.tls is None):
        raise WebConfigError("it puts TLS on or off, which needs a restart")
    if before.authenticates and not after.authenticates:
        raise WebConfigError("it takes authentication away, which needs a restart")


def _seen(paths: Iterable[str]) -> Seen:
    """What shows that a file was changed or replaced, including its permissions."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for path in paths:
        try:
            now = os.stat(path)  # noqa: PTH116 - follows links
        except (OSError, ValueError):
            found.append((path, ()))
        else:
            found.append((path, (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)))
    return tuple(found)


def _read(path: str) -> str:
    """A file's text. Raises WebConfigError: it cannot be read, or is no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a pipe would hold up the start
            os.close(descriptor)
            raise WebConfigError(f"{path} is no regular file")
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(_LONGEST_FILE + 1)
        if len(text) > _LONGEST_FILE:  # OpenSSL would read a terabyte
            raise WebConfigError(f"{path} has more than {_LONGEST_FILE >> 20} MiB")
        return text.decode()
    except OSError as error:
        raise WebConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise WebConfigError(f"{path} is no text in UTF-8") from None
    except ValueError as error:
        raise WebConfigError(f"{path!r} is no path: {error}") from None


def _token(path: str) -> str:
    token = _read(path).strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or len(token.split()) != 1:
        raise WebConfigError(
            f"{path} holds no token of at least {_SHORTEST_TOKEN} characters in one word; "
            "make one with: openssl rand -hex 32"
        )
    return token


def _rules(files: TlsFiles, base: Path) -> Rules:
    ca = _read(str(base / files.client_ca)) if files.client_ca else None
    digest = hashlib.sha256(ca.encode()).hexdigest() if ca else None
    return Rules(verify=files.verify, oldest=files.oldest, client_ca=digest)


def _context(files: TlsFiles, base: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = files.oldest
    cert, key = base / files.cert, base / files.key
    for path in (cert, key, *([base / files.client_ca] if files.client_ca else [])):
        _read(str(path))  # OpenSSL does not report which file it cannot read
    try:
        # never prompt for a password on the terminal
        context.load_cert_chain(cert, key, password=lambda: b"")
        if files.client_ca:
            context.load_verify_locations(base / files.client_ca)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise WebConfigError(f"tls_server_config: {cert}, {key}: {why}") from None
    context.verify_mode = files.verify
    return context
