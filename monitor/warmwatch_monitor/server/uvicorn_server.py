"""uvicorn with our own accept loop: limits, time to live and TLS of connections.

Connections are accepted here and handed to uvicorn's protocol one by one. So each begins with the
present certificates, each has a time to live, and nothing spins when descriptors run out. The
protocol reports the state of its connection (``protocol``).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import resource
import socket
import struct
from asyncio import sslproto
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from warmwatch_monitor.server.connections import IDLE_SECONDS, REQUEST_SECONDS, Connections
from warmwatch_monitor.server.protection import Protection
from warmwatch_monitor.server.protocol import Protocol

_CROWD = 1000
_AT_ONCE = 64  # accepted in one iteration of the loop, to let others run
_AGAIN_SECONDS = 0.25
_SWEEP_SECONDS = _DATE_SECONDS = 1.0
_GOODBYE_SECONDS = 2  # without progress, at shutdown
_LONGEST_GOODBYE_SECONDS = 10
_GLANCE_SECONDS = 0.02
_DESCRIPTORS = 65_536
MOST_HANDSHAKES = 512  # in progress; the oldest makes room for another
_TLS_BUFFER = 16 * 1024  # bytes; one TLS record, and requests are short
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PEERCRED, _UCRED = socket.SO_PEERCRED, struct.Struct("3i")
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 2\r\n"
    b"connection: close\r\ncontent-length: 34\r\n\r\ntoo many connections; retry later\n"
)


def raise_descriptor_limit() -> int:
    """Raise the limit of descriptors to its maximum; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


class Server(uvicorn.Server):
    """Serves ``app`` on ``listeners``, TCP and UNIX sockets, until a signal.

    Args:
        protection: returns the present protection; a new connection uses it until it closes.
        leave: called at the signal; ends all waits of answers. each_second: called every second.
    """

    def __init__(
        self,
        app: ASGIApp,
        listeners: Iterable[socket.socket],
        connections: Connections,
        protection: Callable[[], Protection],
        leave: Callable[[], None],
        each_second: Callable[[], None],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=Protocol,
                ws="none",
                access_log=False,
                lifespan="off",
                log_level="error",  # invalid requests are the client's problem
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=round(IDLE_SECONDS),
                timeout_graceful_shutdown=_GOODBYE_SECONDS,
            )
        )
        self._listeners = tuple(listeners)
        self._all, self._protection = connections, protection
        self._rules, self._leave, self._each_second = protection().rules, leave, each_second
        self._beginning: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._most = 0  # connections since memory was last returned
        self._is_leaving: Callable[[], bool] = lambda: False
        self._signalled = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve_until_signal(self, is_leaving: Callable[[], bool]) -> None:
        """Serve until SIGTERM or SIGINT; not at all if one came before uvicorn handles them."""
        self._is_leaving = is_leaving
        self.run(sockets=[])  # uvicorn opens no sockets of its own

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._is_leaving():
            self.should_exit = True
            return
        for listener in self._listeners:
            listener.setblocking(False)
            self._listen(listener)
        self._sweep()

    async def main_loop(self) -> None:
        """Set the date of answers once a second, until a signal; uvicorn's polls for the signal."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), _DATE_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for task in self._beginning:
            task.cancel()
        self._leave()
        await self._goodbye()
        await super().shutdown(sockets)

    async def _goodbye(self) -> None:
        """Let answers in progress finish, and end clients that do not read theirs. Otherwise
        uvicorn would cancel them, each with a traceback."""
        connections, loop = self.server_state.connections, asyncio.get_running_loop()
        for one in list(connections):
            one.shutdown()
        began = progress = loop.time()
        left = len(connections)
        while connections and not self.force_exit:
            if len(connections) < left:
                left, progress = len(connections), loop.time()
            until = min(began + _LONGEST_GOODBYE_SECONDS, progress + _GOODBYE_SECONDS)
            if loop.time() >= until:
                break
            await asyncio.sleep(_GLANCE_SECONDS)
        for one in list(connections):
            one.transport.abort()

    def _listen(self, listener: socket.socket) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _sweep(self) -> None:
        self._all.sweep()
        self._end_those_of_before()
        self._each_second()
        self._most = max(self._most, len(self._all))
        if self._most >= _CROWD and len(self._all) < self._most / 10:
            self._most = 0
            _give_memory_back()
        asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def _end_those_of_before(self) -> None:
        """If the TLS rules have changed, end older connections after their present answer."""
        rules = self._protection().rules
        if rules != self._rules:
            self._rules = rules
            for one in list(self.server_state.connections):
                if isinstance(one, Protocol) and one.began.rules != rules:
                    one.shutdown()

    def _accept(self, listener: socket.socket) -> None:
        """Accept waiting connections."""
        for _ in range(_AT_ONCE):
            try:
                peer, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(listener, error)
                return
            self._let_in(peer)

    def _rest(self, listener: socket.socket, error: OSError) -> None:
        """Descriptors have run out: make room, and retry after a pause."""
        if error.errno not in _FULL:
            raise error
        self._all.flooded(f"descriptors have run out at {len(self._all)} connections")
        self._all.make_room()
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(_AGAIN_SECONDS, self._listen, listener)

    def _let_in(self, peer: socket.socket) -> None:
        number = self._all.opened(peer.close)
        tls = None if peer.family == socket.AF_UNIX else self._protection().tls
        if number is None:
            _turn_away(peer, in_the_clear=tls is None)
            return
        if tls is not None and len(self._beginning) >= MOST_HANDSHAKES:
            self._all.flooded(f"{MOST_HANDSHAKES} TLS handshakes at the same time, the limit")
            oldest = next(iter(self._beginning))
            del self._beginning[oldest]
            oldest.cancel()
        peer.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._begin(peer, number))
        self._all.becomes(number, task.cancel)
        self._beginning[task] = None
        task.add_done_callback(partial(self._begun, peer, number))

    async def _begin(self, peer: socket.socket, number: int) -> None:
        """Pass a connection to the protocol, over TCP with TLS if it is on."""
        began = self._protection()
        local = peer.family == socket.AF_UNIX
        tls = None if local else began.tls
        # asyncio allocates 256 KiB for each connection, before its handshake.
        sslproto.SSLProtocol.max_size = _TLS_BUFFER
        await asyncio.get_running_loop().connect_accepted_socket(
            partial(
                Protocol,
                self._all,
                number,
                began,
                _user_of(peer) if local else None,
                config=self.config,
                server_state=self.server_state,
            ),
            peer,
            ssl=tls,
            ssl_handshake_timeout=REQUEST_SECONDS if tls else None,
        )

    def _begun(self, peer: socket.socket, number: int, task: asyncio.Task[None]) -> None:
        """The protocol has it, or the handshake failed, or the client disconnected."""
        self._beginning.pop(task, None)
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or failure is not None:
            self._all.closed(number)
            peer.close()
        if failure is not None and not isinstance(failure, OSError):
            raise failure


def _user_of(peer: socket.socket) -> int:
    """The user who connected to a UNIX socket, as the kernel recorded it then."""
    _pid, uid, _gid = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, _PEERCRED, _UCRED.size))
    return int(uid)


def _give_memory_back() -> None:
    """Return freed memory to the system; by itself the C library would hold it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _turn_away(peer: socket.socket, *, in_the_clear: bool) -> None:
    with peer:
        if in_the_clear:
            try:
                peer.setblocking(False)
                peer.send(_BUSY)
            except OSError:
                return  # the client disconnected
