"""Checks every request before an application sees it: host name, then the token."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from warmwatch_monitor.server.protection import Protection

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
