"""The HTTP server: uvicorn around the application, with the limits that uvicorn does not have.

uvicorn bounds heads of requests, bodies, what it buffers for a slow reader, and the time of a
shutdown. It does not bound how long a client may take to send a request or to read an answer, and
idle connections count towards its limit. ``docs/design/server.md`` has the comparison.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from asyncio import sslproto
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from msgspec.structs import replace
from uvicorn.protocols.http.h11_impl import H11Protocol

from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.base.settings import Address, Settings
from warmwatch_monitor.output.console import note
from warmwatch_monitor.server.guard import (
    LOCAL,
    OPEN,
    Audit,
    Guard,
    Protection,
    ProtectionFiles,
    allowed_names,
    is_loopback,
    own_names,
)
from warmwatch_monitor.server.listening import BACKLOG
from warmwatch_monitor.sources.listed import Source, polled

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_POLL_SECONDS = 1.0
PROTECTION = "protection"  # the name of the source

REQUEST_SECONDS = 10.0  # from the connection to the first whole request
IDLE_SECONDS = 60  # from an answer to the next whole request; also of a client that does not read
_GOODBYE_SECONDS = 5
MOST_CONNECTIONS = 10_000
_RESERVE = 128  # descriptors for records, NVML, the rest, and _AT_ONCE
_AT_ONCE = 16  # connections accepted in one turn of the loop; it takes four to close another
_DESCRIPTORS = 65_536  # half-open TLS handshakes do not count as connections
# browsers must not guess the content type, and must not give an answer to other sites
_HEADERS = [("x-content-type-options", "nosniff"), ("cross-origin-resource-policy", "same-origin")]


class HttpServer:
    """The HTTP server of this daemon, as its settings protect it.

    Raises:
        UsageError: the file with the token, the certificate or its key cannot be used.
    """

    def __init__(self, settings: Settings, audit: Audit | None = None) -> None:
        self._settings, self._audit = settings, audit
        files = settings.access.token_file, settings.tls_cert, settings.tls_key
        self._files = ProtectionFiles(*files, _log) if any(files) else None

    @property
    def sources(self) -> tuple[Source[Any], ...]:
        """The files: a change that cannot be used shows as a source's health."""
        return () if self._files is None else (polled(PROTECTION, _POLL_SECONDS, self.reload),)

    def protection(self) -> Protection:
        """The protection in force."""
        return OPEN if self._files is None else self._files.current

    def reload(self) -> None:
        """Read the files now.

        Raises:
            SourceError: one cannot be used; the earlier protection stays in force.
        """
        if self._files is not None:
            self._files.reload()

    def checked(self, bound: tuple[Any, ...]) -> Address:
        """The address to listen on, after a check that it is protected.

        Raises:
            UsageError: other machines can reach it, and it requires no token.
        """
        address, now = self._settings.address, self.protection()
        if address.tls and now.tls is None:
            raise UsageError(
                f"serving {address.url} requires a TLS certificate; "
                "give --tls-cert FILE and --tls-key FILE"
            )
        self._beyond = not is_loopback(bound[0])
        if self._beyond and now.token is None and not self._settings.insecure:
            raise UsageError(
                f"{address} can be reached from other machines and requires no authentication; "
                "give --token-file FILE, or listen on 127.0.0.1, or give --insecure if every "
                "client may read everything"
            )
        return replace(address, port=bound[1], tls=now.tls is not None)

    def serve(
        self,
        app: ASGIApp,
        listeners: Iterable[socket.socket],
        leave: Callable[[], None],
        is_leaving: Callable[[], bool],
    ) -> None:
        """Answer with ``app`` until a signal; ``leave`` then ends all waits.

        ``is_leaving``: whether a signal came before it could be handled here.
        """
        guard = Guard(app, self.protection, self._names(), self._audit)
        _Server(guard, listeners, self.protection, leave, is_leaving).run(sockets=[])

    def _names(self) -> frozenset[str] | None:
        """The accepted host names; ``None``: any, since the token protects from other sites."""
        chosen = self._settings.allowed_hosts
        if self.protection().token is not None and not chosen:
            return None
        return allowed_names(self._settings.address.host, *own_names(beyond=self._beyond), *chosen)


def _log(message: str) -> None:
    note(f"warmwatch: {message}")


class Connection(H11Protocol):
    """A connection of uvicorn that the server can watch."""

    connections: Connections  # type: ignore[assignment]
    _doing: object = None  # its last request, and whether it is answered and read
    _since = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request."""
        return self.cycle is None or self.cycle.response_complete

    def is_overdue(self, now: float) -> bool:
        """Whether the client takes too long, whatever it sends; called every second."""
        doing = self.cycle, self.is_idle, self.flow.write_paused
        if doing != self._doing:
            self._doing, self._since = doing, now
        allowed = REQUEST_SECONDS if self.cycle is None else IDLE_SECONDS
        return (self.is_idle or self.flow.write_paused) and now - self._since >= allowed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Above the limit, the first connection that waits for a request makes room."""
        super().connection_made(transport)
        if len(self.connections) >= (self.limit_concurrency or 0):
            for other in self.connections:
                if other is not self and other.is_idle:
                    self.connections.discard(other)  # before its end, so that it makes room once
                    other.transport.abort()
                    break


class Connections(dict[Connection, None]):
    """A set in order of insertion, in place of uvicorn's."""

    def add(self, connection: Connection) -> None:
        self[connection] = None

    def discard(self, connection: Connection) -> None:
        self.pop(connection, None)


class _Server(uvicorn.Server):
    """Serves ``app`` on ``listeners``, TCP and UNIX sockets.

    Args:
        protection: returns the present protection. leave: ends all waits of answers.
    """

    def __init__(
        self,
        app: Guard,
        listeners: Iterable[socket.socket],
        protection: Callable[[], Protection],
        leave: Callable[[], None],
        is_leaving: Callable[[], bool],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=Connection,
                ws="none",
                lifespan="off",
                access_log=False,
                log_level="error",  # invalid requests are the client's problem
                proxy_headers=False,
                server_header=False,
                headers=_HEADERS,
                limit_concurrency=_most_connections() + 1,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=_GOODBYE_SECONDS,
                timeout_notify=0,
                callback_notify=self._each_second,
            )
        )
        self._listeners, self._protection = listeners, protection
        self._leave, self._is_leaving = leave, is_leaving
        self._token = protection().token
        self._connections = Connections()
        self.server_state.connections = self._connections  # type: ignore[assignment]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, on TCP sockets with TLS if there is a certificate."""
        await super().startup(sockets)
        self.should_exit |= self._is_leaving()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_unless_flooded)
        sslproto.SSLProtocol.max_size = _TLS_BUFFER
        for listener in self._listeners:
            local = listener.family == socket.AF_UNIX
            tls = None if local else self._protection().tls
            make = partial(
                Connection,
                config=self.config,
                server_state=self.server_state,
                app_state={LOCAL: local},
            )
            self.servers.append(
                await loop.create_server(
                    make,
                    sock=listener,
                    backlog=_AT_ONCE,
                    ssl=tls,
                    ssl_handshake_timeout=REQUEST_SECONDS if tls else None,
                )
            )
            listener.listen(BACKLOG)  # asyncio's own backlog is how many it accepts in one turn

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._leave()
        logging.getLogger("uvicorn.error").disabled = True  # it logs each answer that it cuts off
        await super().shutdown(sockets)

    async def _each_second(self) -> None:
        now, token = time.monotonic(), self._protection().token
        revoked, self._token = token != self._token, token
        for connection in list(self._connections):
            if connection.is_overdue(now) or (revoked and not connection.app_state[LOCAL]):
                connection.transport.abort()


def _log_unless_flooded(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """asyncio would log a traceback for each time that descriptors have run out."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


_TLS_BUFFER = 1024  # bytes; asyncio would allocate 256 KiB for each, before its handshake


def _most_connections() -> int:
    """As many as leave descriptors for the rest, whose limit is raised for that if it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(1, min(MOST_CONNECTIONS, max(wanted - _RESERVE, wanted // 2)))
