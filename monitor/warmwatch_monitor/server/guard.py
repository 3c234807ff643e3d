"""Checks every request before an application sees it: host name, then credentials."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warmwatch_monitor.server.credentials import BusyError, Client, local_client
from warmwatch_monitor.server.peers import LOCAL_UID, peer_of
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
        self._long: set[_LongRequest] = set()
        self._rechecking: asyncio.Task[None] | None = None

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
        state = {**scope.get("state", {})}
        if (owner := _owner(client)) is not None:
            state[OWNER_UID] = owner
        if scope["path"] == EVENTS or b"run=" in scope.get("query_string", b""):
            state[PEER] = peer_of(scope)
        scope = {**scope, "state": state}
        if head:
            scope = {**scope, "method": "GET"}
        may_be_long = scope["path"] == EVENTS or b"wait=" in scope.get("query_string", b"")
        if seen.authenticates and may_be_long:
            await self._pass_until_revoked(scope, receive, send, client, seen)
        else:
            await self._inner(scope, receive, send)

    @staticmethod
    def _note(audit: Audit, scope: Scope, client: Client | None, refusal: _Refusal | None) -> None:
        if scope["path"] in PROBES and refusal is None:
            return
        address, _ = scope.get("client") or ("unix", 0)
        user = client.name if client else scope.get("state", {}).get(CERTIFICATE)
        status = None if refusal is None else refusal.status
        audit(str(address), user, scope["path"][:_LONGEST_NAME], status)

    async def _pass_until_revoked(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        client: Client | None,
        seen: Protection,
    ) -> None:
        """Pass a request that may last; end it when :meth:`recheck` finds its access revoked."""
        task = asyncio.current_task()
        assert task is not None, "a request has a task"
        request = _LongRequest(scope, task, client, seen)
        started = ended = False

        async def checked(message: Message) -> None:
            nonlocal started, ended
            now = self._protection()
            if now is not request.seen and await self._is_revoked(request, now):
                raise OSError("the client's access was revoked")
            started, ended = True, message["type"] == _END["type"] and not message.get("more_body")
            await send(message)

        self._long.add(request)
        try:
            await self._inner(scope, receive, checked)
        except (asyncio.CancelledError, OSError):
            if request.refusal is None:
                raise
        finally:
            self._long.discard(request)
        if request.refusal is not None and not ended:
            await (send(_END) if started else request.refusal.send(send))

    def recheck(self) -> None:
        """End requests in progress whose access a change has revoked; called every second."""
        now = self._protection()
        late = [request for request in self._long if request.seen is not now]
        if late and (self._rechecking is None or self._rechecking.done()):
            self._rechecking = asyncio.get_running_loop().create_task(self._recheck(late, now))

    async def _recheck(self, late: Iterable[_LongRequest], now: Protection) -> None:
        for request in late:
            if await self._is_revoked(request, now) and request in self._long:
                request.task.cancel()

    async def _is_revoked(self, request: _LongRequest, now: Protection) -> bool:
        client, refusal = await self._admit(request.scope)
        if refusal is not None and refusal.status == 503:
            return False  # its password waits to be tried: check it the next time
        if refusal is None and _owner(client) == _owner(request.client):
            request.seen = now
            return False
        words = "the runs that these credentials may read have changed\n"
        request.refusal = refusal or _Refusal(403, words)
        return True

    async def _admit(self, scope: Scope) -> tuple[Client | None, _Refusal | None]:
        """The client, if credentials are required, and the refusal, if there is one."""
        refusal = self._misplaced(scope)
        protection = self._protection()
        credentials, uid = protection.credentials, scope.get("state", {}).get(LOCAL_UID)
        is_local = protection.authenticates and uid is not None  # has shown no certificate
        if refusal is not None or scope["path"] in PROBES or not (credentials or is_local):
            return None, refusal
        try:
            given = [value.encode("latin-1") for value in _values(scope, b"authorization")]
            client = local_client(uid) if is_local and not given else None
            if len(given) == 1 and credentials is not None:
                client = await credentials.identify(given[0], lambda: peer_of(scope))
        except BusyError:
            words = "too many passwords are being tried\n"
            return None, _Refusal(503, words, (b"retry-after", b"2"))
        if client is None:
            known_kinds = credentials.challenges if credentials else ()
            challenges = [(b"www-authenticate", one.encode()) for one in known_kinds]
            words = "authentication required: a bearer token, or a name and password\n"
            known = "invalid credentials\n"
            return None, _Refusal(401, known if given else words, *challenges)
        if client.owner_uid is not None and scope["path"] not in _OF_ONE_OWNER:
            words = f"this access is for one user's runs: it reads {' and '.join(_OF_ONE_OWNER)}\n"
            return client, _Refusal(403, words)
        return client, None

    def _misplaced(self, scope: Scope) -> _Refusal | None:
        """Why a request is not for this daemon, for any client."""
        if scope["method"] not in _METHODS:
            words = "all endpoints are read-only: use GET or HEAD\n"
            return _Refusal(405, words, (b"allow", b"GET, HEAD"))
        protection = self._protection()
        if scope.get("state", {}).get(BEGAN, OPEN).rules != protection.rules:
            words = "the required credentials changed after this connection opened: reconnect\n"
            return _Refusal(421, words, _CLOSE)
        names = self._names(protection)
        for host in _values(scope, b"host") if names is not None else ():
            if not is_allowed(host, names or ()):
                return _Refusal(421, _misdirected(host))
        return None


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


def _misdirected(header: str) -> str:
    host = host_of(header)[:_LONGEST_NAME]
    name = host if host.isascii() and host.isprintable() else "that name"
    return (
        f"{name!r} is not a name of this daemon: use its address or localhost, or start it with "
        "--allowed-host and the name\n"
    )


class _LongRequest:
    """A request in progress: of which client, and the Protection that last admitted it."""

    def __init__(
        self, scope: Scope, task: asyncio.Task[object], client: Client | None, seen: Protection
    ) -> None:
        self.scope, self.task, self.client, self.seen = scope, task, client, seen
        self.refusal: _Refusal | None = None


def _owner(client: Client | None) -> int | None:
    return None if client is None else client.owner_uid


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
