"""Parses the file of ``--web-config`` into one frozen value. Pure.

The format is that of Prometheus' exporters, so that one file can serve several of them. Keys that
they have and this daemon does not are refused, never ignored. ``bearer_tokens``,
``bearer_token_files`` and ``bearer_token_sha256`` are our own keys.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from warmwatch_monitor.errors import described

CLIENT_AUTH: Mapping[str, ssl.VerifyMode] = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
TLS_VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
MOST_EXPENSIVE_HASH = 15  # of bcrypt: several seconds; each further one doubles that
_KEYS = (
    "tls_server_config",
    "basic_auth_users",
    "bearer_tokens",
    "bearer_token_files",
    "bearer_token_sha256",
)
_TOKEN_KEYS = ("name", "file", "sha256", "user")
_TLS_KEYS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OF_NOTHING = hashlib.sha256(b"").hexdigest()


class WebConfigError(Exception):
    """The file cannot be used; one sentence."""


class TlsFiles(Struct, frozen=True, kw_only=True):
    """The files of TLS. ``client_ca``: the authority of the clients' certificates."""

    cert: str
    key: str
    client_ca: str | None = None
    verify: ssl.VerifyMode = ssl.CERT_NONE
    oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2


class TokenEntry(Struct, frozen=True, kw_only=True):
    """One bearer token: the file that holds it, or its SHA-256 in lower hexadecimal digits.

    Attributes:
        name: for the access log. user: name or uid of the user whose runs only it may read;
            ``None``: all runs.
    """

    name: str
    file: str | None = None
    sha256: str | None = None
    user: str | int | None = None


class WebConfig(Struct, frozen=True, kw_only=True):
    """The file's content, with unchanged paths. ``users``: bcrypt hashes by name."""

    tls: TlsFiles | None = None
    users: Mapping[str, str]
    tokens: tuple[TokenEntry, ...] = ()


def parse(text: str) -> WebConfig:
    """Parse the file.

    Raises:
        WebConfigError: it has invalid content, or none.
    """
    import yaml  # takes memory that most daemons do not need

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise WebConfigError(f"it is not YAML: {' '.join(str(error).split())}") from None
    except Exception as error:  # noqa: BLE001 - as a date that there is not; PyYAML lets them through
        raise WebConfigError(f"it cannot be read as YAML: {described(error)}") from None
    if not found:  # also while it is rewritten: stay protected
        raise WebConfigError(f"it is empty; its keys are {', '.join(_KEYS)}")
    file = _mapping("the file", found, _KEYS)
    tls = file.get("tls_server_config")
    config = WebConfig(
        tls=_tls(_mapping("tls_server_config", tls, _TLS_KEYS)) if tls else None,
        users=dict(_users(_mapping("basic_auth_users", file.get("basic_auth_users") or {}))),
        tokens=tuple(_tokens(file)),
    )
    if not (config.tls or config.users or config.tokens):
        raise WebConfigError(f"every key in it is empty; its keys are {', '.join(_KEYS)}")
    return config


def _tls(tls: Mapping[str, Any]) -> TlsFiles:
    words = {key: _text(f"tls_server_config.{key}", value) for key, value in tls.items()}
    if not (words.get("cert_file") and words.get("key_file")):
        raise WebConfigError("tls_server_config needs cert_file and key_file")
    ca = words.get("client_ca_file")
    kind = words.get("client_auth_type", "NoClientCert")
    verify = _chosen("client_auth_type", kind, CLIENT_AUTH)
    if (verify != ssl.CERT_NONE) != bool(ca):
        raise WebConfigError(
            "client_ca_file and a client_auth_type other than NoClientCert belong together"
        )
    oldest = _chosen("min_version", words.get("min_version", "TLS12"), TLS_VERSIONS)
    return TlsFiles(
        cert=words["cert_file"], key=words["key_file"], client_ca=ca, verify=verify, oldest=oldest
    )


def _users(users: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in users.items():
        hash = value if isinstance(value, str) else ""
        match = _BCRYPT.fullmatch(hash)
        if not match or ":" in name or not _encodes(name):
            raise WebConfigError(
                f"basic_auth_users: {name!r} has no bcrypt hash; make one with: htpasswd -nBC 10 ''"
            )
        if not 4 <= int(match[1]) <= MOST_EXPENSIVE_HASH:
            raise WebConfigError(
                f"basic_auth_users: the hash of {name!r} has cost {int(match[1])}; "
                f"at most {MOST_EXPENSIVE_HASH} can be used"
            )
        yield name, hash


def _encodes(name: str) -> bool:
    """Whether UTF-8 can encode it: YAML's escapes can make half a surrogate pair."""
    return not any("\ud800" <= one <= "\udfff" for one in name)


def _tokens(file: Mapping[str, Any]) -> Iterator[TokenEntry]:
    for path in _texts("bearer_token_files", file.get("bearer_token_files")):
        yield TokenEntry(name=path, file=path)
    for text in _texts("bearer_token_sha256", file.get("bearer_token_sha256")):
        digest = _digest("bearer_token_sha256", text)
        yield TokenEntry(name=f"sha256:{digest[:8]}", sha256=digest)
    entries = file.get("bearer_tokens")
    if entries is not None and not isinstance(entries, list):
        raise WebConfigError("bearer_tokens is no list")
    for entry in entries or ():
        yield _token_entry(_mapping("an entry of bearer_tokens", entry, _TOKEN_KEYS))


def _token_entry(entry: Mapping[str, Any]) -> TokenEntry:
    if ("file" in entry) == ("sha256" in entry):
        raise WebConfigError("an entry of bearer_tokens needs either file or sha256")
    user = entry.get("user")
    if "user" in entry and not _is_user(user):
        raise WebConfigError(f"bearer_tokens.user: {user!r} is neither a user's name nor a uid")
    path = _text("bearer_tokens.file", entry["file"]) if "file" in entry else None
    digest = None
    if path is None:
        text = _text("bearer_tokens.sha256", entry["sha256"])
        digest = _digest("bearer_tokens.sha256", text)
    name = _text("bearer_tokens.name", entry["name"]) if "name" in entry else None
    usual = path or f"sha256:{(digest or '')[:8]}"
    return TokenEntry(name=name or usual, file=path, sha256=digest, user=user)


def _is_user(value: Any) -> bool:
    is_uid = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return is_uid or (isinstance(value, str) and bool(value))


def _digest(name: str, text: str) -> str:
    digest = text.lower()
    if not _SHA256.fullmatch(digest):
        raise WebConfigError(
            f"{name}: each is 64 hexadecimal digits, as of: printf %s TOKEN | sha256sum"
        )
    if digest == _OF_NOTHING:  # an unset variable would admit every client
        raise WebConfigError(f"{name}: one is the digest of no token at all")
    return digest


def _mapping(name: str, value: Any, known: tuple[str, ...] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise WebConfigError(f"{name} is no mapping of names")
    for key in value:
        if known is not None and key not in known:
            raise WebConfigError(
                f"{name} has {key!r}, which cannot be used; {', '.join(known)} can"
            )
    return value


def _texts(name: str, value: Any) -> Iterator[str]:
    if value is not None and not isinstance(value, list):
        raise WebConfigError(f"{name} is no list")
    for one in value or ():
        yield _text(name, one)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise WebConfigError(f"{name}: {value!r} is no text")
    return value


def _chosen(name: str, text: str, known: Mapping[str, Any]) -> Any:
    if text not in known:
        raise WebConfigError(f"{name}: {text!r} cannot be used; {', '.join(known)} can")
    return known[text]
