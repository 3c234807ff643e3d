"""Checks every request before an application sees it: host name, then the token.

The files with the token, the certificate and its key are read again when they change. A change that
cannot be used has no effect; it is this source's error until the files are mended.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Iterable

from msgspec import Struct
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from warmwatch_monitor.base.errors import SourceError, UsageError
from warmwatch_monitor.base.timeouts import read_text

_SHORTEST_TOKEN = 16
_LONGEST_FILE = 1 << 20

Seen = tuple[tuple[int, ...], ...]


class Protection(Struct, frozen=True, kw_only=True):
    """How connections are protected. ``token``: a digest; ``None``: every client may read.

    ``tls``: a server that began with one of these contexts uses the present one.
    """

    tls: ssl.SSLContext | None = None
    token: bytes | None = None

    def admits(self, header: bytes) -> bool:
        """Whether an ``Authorization`` header has the token."""
        kind, _, given = header.strip().partition(b" ")
        return (
            self.token is not None
            and kind.lower() == b"bearer"
            and hmac.compare_digest(hashlib.sha256(given.strip()).digest(), self.token)
        )


OPEN = Protection()


class ProtectionFiles:
    """Follows the files. Any thread may read ``current``.

    Raises:
        UsageError: one of them cannot be used.
    """

    def __init__(
        self, token: str | None, cert: str | None, key: str | None, log: Callable[[str], None]
    ) -> None:
        self._token, self._cert, self._key, self._log = token, cert, key, log
        self._paths = tuple(path for path in (token, cert, key) if path is not None)
        self._error: str | None = None
        self._seen = _seen(self._paths)
        self.current = self._load()

    def reload(self) -> Protection:
        """The protection from now on. Raises SourceError for a rejected change."""
        seen = _seen(
            self._paths
        )  # before reading, so that the next call notices a change meanwhile
        if self._error is None and seen == self._seen:
            return self.current
        try:
            protection = self._load()
        except UsageError as error:
            message = f"{error}; what held before this change still holds"
            if message != self._error:
                self._log(message)
            self._error = message
            raise SourceError(message) from None
        if seen != self._seen:
            self._log(f"{', '.join(self._paths)}: read again, and in use")
        self._seen, self.current, self._error = seen, protection, None
        return protection

    def _load(self) -> Protection:
        tls = None if self._cert is None else _context(self._cert, self._key or self._cert)
        if tls is not None:  # each handshake uses the certificate that is in force then
            tls.sni_callback = lambda handshake, *_: setattr(handshake, "context", self.current.tls)
        return Protection(
            tls=tls,
            token=None if self._token is None else _digest(self._token),
        )


def _seen(paths: Iterable[str]) -> Seen:
    """What shows that a file was changed or replaced, including its permissions."""
    groups: list[tuple[int, ...]] = []
    for path in paths:
        try:
            now = os.stat(path)  # noqa: PTH116 - follows links
        except (OSError, ValueError):
            groups.append(())
        else:
            groups.append((now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns))
    return tuple(groups)


def _read(path: str) -> str:
    try:
        return read_text(path, _LONGEST_FILE)  # OpenSSL would read a terabyte
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8") from None
    except ValueError as error:
        raise UsageError(f"{path!r} is no path: {error}") from None


def _digest(path: str) -> bytes:
    token = _read(path).strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or len(token.split()) != 1:
        raise UsageError(
            f"{path} holds no token of at least {_SHORTEST_TOKEN} characters in one word; "
            "make one with: openssl rand -hex 32"
        )
    return hashlib.sha256(token.encode()).digest()


def _context(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (cert, key):
        _read(path)  # OpenSSL does not report which file it cannot read
    try:
        # never prompt for a password on the terminal
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise UsageError(f"{cert}, {key}: {why}") from None
    return context


LOOPBACK = "localhost"


def own_names(*, beyond: bool) -> tuple[str, ...]:
    """This machine's names; with ``beyond`` also names under which others reach it."""
    return (socket.gethostname(), *((socket.getfqdn(),) if beyond else ()))


def allowed_names(*names: str) -> frozenset[str]:
    """The names in full and in short form, for :func:`is_allowed`."""
    whole = {_plain(name) for name in (LOOPBACK, *names)}
    return frozenset({*whole, *(name.partition(".")[0] for name in whole)})


def is_allowed(header: str, names: Iterable[str]) -> bool:
    """Whether a request with this ``Host`` header is meant for this machine."""
    host = host_of(header)
    return is_address(host) or host.endswith(f".{LOOPBACK}") or host in names


def host_of(header: str) -> str:
    """The name or address in a ``Host`` header, without port, brackets and trailing dot."""
    host = header.strip()
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return _plain(host.rpartition(":")[0] if ":" in host else host)


def is_address(host: str) -> bool:
    """Whether it is an IP address, not a name."""
    try:
        _address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this bound address."""
    return _address(host).is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IPv6 address may have a zone, which names an interface. Raises ValueError."""
    address, percent, _ = host.partition("%")
    return ipaddress.IPv6Address(address) if percent else ipaddress.ip_address(host)


def _plain(name: str) -> str:
    return name.strip().rstrip(".").lower()


PROBES = ("/-/healthy", "/-/ready")
LOCAL = "local"  # in a scope's state: whether it came over the UNIX socket
_LONGEST_NAME = 100

# address of the client, the path, and the status of a refusal, if any
Audit = Callable[[str, str, "int | None"], None]


class Guard:
    """Passes permitted requests to ``inner``.

    Args:
        protection: returns the present protection. names: accepted host names; with a token, every
            name is if this is ``None``. audit: called for each request while a token is required.
    """

    def __init__(
        self,
        inner: ASGIApp,
        protection: Callable[[], Protection],
        names: frozenset[str] | None,
        audit: Audit | None = None,
    ) -> None:
        self._inner, self._protection, self._names = inner, protection, names
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        if self._audit is not None and self._protection().token is not None:
            self._note(self._audit, scope, refusal)
        await (refusal or self._inner)(scope, receive, send)

    @staticmethod
    def _note(audit: Audit, scope: Scope, refusal: PlainTextResponse | None) -> None:
        if scope["path"] in PROBES and refusal is None:
            return
        client = str(scope["client"][0]) if scope.get("client") else LOCAL
        audit(client, scope["path"][:_LONGEST_NAME], refusal.status_code if refusal else None)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        """The answer to a request that is not permitted; ``None`` if it is."""
        protection = self._protection()
        if self._names is not None:
            for host in _values(scope, b"host"):
                if not is_allowed(host, self._names):
                    return PlainTextResponse(_misdirected(host), 421)
        if protection.token is None or scope["path"] in PROBES:
            return None
        if scope.get("state", {}).get(LOCAL):
            return None  # with a token, only root and the daemon's user can connect to it
        given = [value.encode("latin-1") for value in _values(scope, b"authorization")]
        if len(given) == 1 and protection.admits(given[0]):
            return None
        text = "invalid token\n" if given else "authentication required: a bearer token\n"
        challenge = {"www-authenticate": 'Bearer realm="warmwatch"'}
        return PlainTextResponse(text, 401, headers=challenge)


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


def _misdirected(header: str) -> str:
    host = host_of(header)[:_LONGEST_NAME]
    name = host if host.isascii() and host.isprintable() else "that name"
    return (
        f"{name!r} is not a name of this daemon: use its address or localhost, or start it with "
        "--allowed-host and the name\n"
    )
