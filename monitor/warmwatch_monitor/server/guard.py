"""Checks every request before an application sees it: host name, then credentials."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warmwatch_monitor.server.credentials import BusyError, Client
from warmwatch_monitor.server.peers import peer_of
from warmwatch_monitor.server.protection import OPEN, Protection

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
EVENTS = "/events"
PEER = "peer"  # in a scope's state: the client's name, for limits
BEGAN = "began"  # in a scope's state: the Protection when its connection began
CERTIFICATE = "certificate"  # in a scope's state: the common name of the client's certificate
OWNER_UID = "owner_uid"  # in a scope's state: the user whose runs only the client may read
_OF_ONE_OWNER = ("/status", "/metrics")
_METHODS = ("GET", "HEAD")
_CLOSE = (b"connection", b"close")
_LONGEST_NAME = 100
_END: Message = {"type": "http.response.body", "body": b""}
# browsers must not guess the content type, and must not give an answer to other sites
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


# address and name of the client, the path, and the status of a refusal, if any
Audit = Callable[[str, "str | None", str, "int | None"], None]


class Guard:
    """Passes permitted requests to ``inner``.

    Args:
        protection: returns the present protection. names: accepted host names; ``None``: all.
        audit: called for each request while authentication is required.
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
        seen = self._protection()  # read it first: it may change during the checks
        client, refusal = await self._admit(scope)
        if self._audit is not None and seen.authenticates:
            self._note(self._audit, scope, client, refusal)
        if refusal is not None:
            await refusal.send(send)
            return
        send = self._reconsidering(scope, send, seen)
        state = {**scope.get("state", {})}
        if client is not None and client.owner_uid is not None:
            state[OWNER_UID] = client.owner_uid
        if scope["path"] == EVENTS or b"run=" in scope.get("query_string", b""):
            state[PEER] = peer_of(scope)
        scope = {**scope, "state": state}
        await self._inner({**scope, "method": "GET"} if head else scope, receive, send)

    @staticmethod
    def _note(audit: Audit, scope: Scope, client: Client | None, refusal: _Refusal | None) -> None:
        if scope["path"] in PROBES and refusal is None:
            return
        address, _ = scope.get("client") or ("", 0)
        user = client.name if client else scope.get("state", {}).get(CERTIFICATE)
        status = None if refusal is None else refusal.status
        audit(str(address), user, scope["path"][:_LONGEST_NAME], status)

    def _reconsidering(self, scope: Scope, send: Send, seen: Protection) -> Send:
        """``send``, which raises OSError once a long answer would be refused by now.

        ``seen``: the protection that permitted the request.
        """

        async def through(message: Message) -> None:
            nonlocal seen
            now = self._protection()
            if message.get("more_body") and now is not seen:
                if (await self._admit(scope))[1] is not None:
                    await send(_END)
                    raise OSError("who asks may not ask any more")
                seen = now
            await send(message)

        return through

    async def _admit(self, scope: Scope) -> tuple[Client | None, _Refusal | None]:
        """The client, if credentials are required, and the refusal, if there is one."""
        refusal = self._misplaced(scope)
        credentials = self._protection().credentials
        if refusal is not None or credentials is None or scope["path"] in PROBES:
            return None, refusal
        try:
            given = [value.encode("latin-1") for value in _values(scope, b"authorization")]
            client = None
            if len(given) == 1:
                client = await credentials.identify(given[0], lambda: peer_of(scope))
        except BusyError:
            words = "too many passwords are being tried\n"
            return None, _Refusal(503, words, (b"retry-after", b"2"))
        if client is None:
            challenges = [(b"www-authenticate", one.encode()) for one in credentials.challenges]
            words = "who asks here says who he is: by a bearer token, or by name and password\n"
            known = "these credentials are not known\n"
            return None, _Refusal(401, known if given else words, *challenges)
        if client.owner_uid is not None and scope["path"] not in _OF_ONE_OWNER:
            words = f"this token is for one user's runs: it reads {' and '.join(_OF_ONE_OWNER)}\n"
            return client, _Refusal(403, words)
        return client, None

    def _misplaced(self, scope: Scope) -> _Refusal | None:
        """Why a request is not for this daemon, for any client."""
        if scope["method"] not in _METHODS:
            words = "nothing can be changed here: there is GET, and HEAD\n"
            return _Refusal(405, words, (b"allow", b"GET, HEAD"))
        protection = self._protection()
        if scope.get("state", {}).get(BEGAN, OPEN).rules != protection.rules:
            words = "what connections must show has changed since this one began: make a new one\n"
            return _Refusal(421, words, _CLOSE)
        names = self._names(protection)
        for host in _values(scope, b"host") if names is not None else ():
            if not is_allowed(host, names or ()):
                return _Refusal(421, _misdirected(host))
        return None


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


def _misdirected(header: str) -> str:
    asked = host_of(header)[:_LONGEST_NAME]
    name = asked if asked.isascii() and asked.isprintable() else "that name"
    return (
        f"this daemon does not know itself as {name!r}: ask it by its address or as localhost, "
        "or start it with --allowed-host and the name\n"
    )


class _Refusal:
    """An error response with one sentence."""

    def __init__(self, status: int, words: str, *headers: tuple[bytes, bytes]) -> None:
        self.status, self._body = status, words.encode()
        kind = (b"content-type", b"text/plain; charset=utf-8")
        self._headers = [kind, (b"content-length", b"%d" % len(self._body)), *headers]

    async def send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status}
        await send({**start, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


def _answering(send: Send, *, without_body: bool) -> Send:
    """``send``, with the headers of every answer; for HEAD without a body."""

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
