"""Checks every request before an application sees it: host name, then credentials."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warmwatch_monitor.server.credentials import BusyError
from warmwatch_monitor.server.peers import peer_of
from warmwatch_monitor.server.protection import OPEN, Protection

LOOPBACK = "localhost"


def own_names(*, beyond: bool) -> tuple[str, ...]:
    """What this machine calls itself; and ``beyond`` itself, for which others may be asked."""
    return (socket.gethostname(), *((socket.getfqdn(),) if beyond else ()))


def allowed_names(*names: str) -> frozenset[str]:
    """The names, each in full and in short, as :func:`is_allowed` takes them."""
    whole = {_plain(name) for name in (LOOPBACK, *names)}
    return frozenset({*whole, *(name.partition(".")[0] for name in whole)})


def is_allowed(header: str, names: Iterable[str]) -> bool:
    """Whether a request with this ``Host`` header is meant for this machine."""
    host = host_of(header)
    return is_address(host) or host.endswith(f".{LOOPBACK}") or host in names


def host_of(header: str) -> str:
    """The name or address in a ``Host`` header, without port, brackets and a dot at the end."""
    host = header.strip()
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return _plain(host.rpartition(":")[0] if ":" in host else host)


def is_address(host: str) -> bool:
    """Whether it is an IP address, and no name."""
    try:
        _address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether this bound address can be reached from this machine alone."""
    return _address(host).is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Of IPv6 it may have a zone, which names an interface. Raises ValueError: it is none."""
    address, percent, _ = host.partition("%")
    return ipaddress.IPv6Address(address) if percent else ipaddress.ip_address(host)


def _plain(name: str) -> str:
    return name.strip().rstrip(".").lower()


PROBES = ("/-/healthy", "/-/ready")
EVENTS = "/events"
PEER = "peer"  # in the state of a scope: who listens, for limits
BEGAN = "began"  # in the state of a scope: the Protection under which its connection began
_METHODS = ("GET", "HEAD")
_CLOSE = (b"connection", b"close")
_LONGEST_NAME = 100
_END: Message = {"type": "http.response.body", "body": b""}
# a browser takes an answer for nothing but what it says it is, and gives it to no other site's page
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


# who asked (an address), for which path, and with which status he was refused; None: let through
Audit = Callable[[str, str, "int | None"], None]


class Guard:
    """Lets requests through to ``inner``.

    Args:
        protection: what protects now. names: hosts by which the daemon may be asked; ``None``
            where every name is right. audit: called for each request while credentials
            are required.
    """

    def __init__(
        self,
        inner: ASGIApp,
        protection: Callable[[], Protection],
        names: Callable[[Protection], frozenset[str] | None],
        audit: Audit | None = None,
    ) -> None:
        self._inner, self._protection, self._names = inner, protection, names
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        send = _answering(send, without_body=head)
        seen = self._protection()  # before: it may change while who asks is looked at
        refusal = await self._refusal(scope)
        if self._audit is not None and seen.credentials is not None:
            self._note(self._audit, scope, refused=refusal is not None)
        if refusal is not None:
            await refusal(send)
            return
        send = self._reconsidering(scope, send, seen)
        if scope["path"] == EVENTS:
            scope = {**scope, "state": {**scope.get("state", {}), PEER: peer_of(scope)}}
        await self._inner({**scope, "method": "GET"} if head else scope, receive, send)

    @staticmethod
    def _note(audit: Audit, scope: Scope, *, refused: bool) -> None:
        if scope["path"] in PROBES and not refused:
            return
        client = scope.get("client") or ("", 0)
        audit(str(client[0]), scope["path"][:_LONGEST_NAME], 401 if refused else None)

    def _reconsidering(self, scope: Scope, send: Send, seen: Protection) -> Send:
        """``send``, which raises OSError once an answer that goes on would now be refused.

        ``seen``: under which it was let through.
        """

        async def through(message: Message) -> None:
            nonlocal seen
            now = self._protection()
            if message.get("more_body") and now is not seen:
                if await self._refusal(scope) is not None:
                    await send(_END)
                    raise OSError("who asks may not ask any more")
                seen = now
            await send(message)

        return through

    async def _refusal(self, scope: Scope) -> Callable[[Send], Awaitable[None]] | None:
        if scope["method"] not in _METHODS:
            words = "nothing can be changed here: there is GET, and HEAD\n"
            return _refusal(405, words, (b"allow", b"GET, HEAD"))
        protection = self._protection()
        if scope.get("state", {}).get(BEGAN, OPEN).rules != protection.rules:
            words = "what connections must show has changed since this one began: make a new one\n"
            return _refusal(421, words, _CLOSE)
        names = self._names(protection)
        for host in _values(scope, b"host") if names is not None else ():
            if not is_allowed(host, names or ()):
                return _refusal(421, _misdirected(host))
        credentials = protection.credentials
        if credentials is None or scope["path"] in PROBES:
            return None
        try:
            given = [value.encode("latin-1") for value in _values(scope, b"authorization")]
            if len(given) == 1 and await credentials.allow(given[0], lambda: peer_of(scope)):
                return None
        except BusyError:
            return _refusal(503, "too many passwords are being tried\n", (b"retry-after", b"2"))
        challenges = [(b"www-authenticate", one.encode()) for one in credentials.challenges]
        words = "who asks here says who he is: by a bearer token, or by name and password\n"
        return _refusal(
            401, words if not given else "these credentials are not known\n", *challenges
        )


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


def _misdirected(header: str) -> str:
    asked = host_of(header)[:_LONGEST_NAME]
    name = asked if asked.isascii() and asked.isprintable() else "that name"
    return (
        f"this daemon does not know itself as {name!r}: ask it by its address or as localhost, "
        "or start it with --allowed-host and the name\n"
    )


def _refusal(
    status: int, words: str, *headers: tuple[bytes, bytes]
) -> Callable[[Send], Awaitable[None]]:
    body = words.encode()
    kind = (b"content-type", b"text/plain; charset=utf-8")
    length = (b"content-length", b"%d" % len(body))

    async def answer(send: Send) -> None:
        start = {"type": "http.response.start", "status": status}
        await send({**start, "headers": [kind, length, *headers]})
        await send({"type": "http.response.body", "body": body})

    return answer


def _answering(send: Send, *, without_body: bool) -> Send:
    """``send``, with the headers that every answer has; for HEAD the headers are all of it."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_ALWAYS]}
        elif without_body and message["type"] == "http.response.body":
            if message.get("more_body"):
                await send(_END)
                raise OSError("there is no body to go on with")
            message = {**message, "body": b""}
        await send(message)

    return answer
