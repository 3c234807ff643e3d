"""A proxy in front of a daemon: counts requests, and may mishandle ``/events``."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

Treatment = Callable[[socket.socket], object]


class Proxy:
    """A server that a command queries instead of a daemon.

    Attributes:
        target: the daemon's URL; ``None``: there is none.
        treatment: answers a request for ``/events`` in place of the daemon.
        silent: no request is answered.
        polls: when ``/status`` was requested.
        event_requests: number of requests for ``/events``.
        events_sent: number of its parts that contained an event.
        polls_before_event: number of polls before the latest client received its first event;
            ``None``: no client has.
        turned_away: number of requests while there was no daemon.
    """

    def __init__(self, server: socket.socket, target: str | None) -> None:
        self._server, self.target = server, target
        self.address = f"127.0.0.1:{server.getsockname()[1]}"
        self.treatment: Treatment | None = None
        self.silent = False
        self.polls: list[float] = []
        self.polls_before_event: int | None = None
        self.event_requests = self.events_sent = self.turned_away = 0
        self.over = threading.Event()

    @property
    def is_caught_up(self) -> bool:
        """Whether the client has polled since the first event, as it does once."""
        return self.polls_before_event is not None and len(self.polls) > self.polls_before_event

    def serve(self) -> None:
        with suppress(OSError):  # until it is closed
            while True:
                peer, _ = self._server.accept()
                threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            request = peer.recv(65536)
            if self.silent:
                self.over.wait()
            listens = request.startswith(b"GET /events")
            if listens:
                self.event_requests += 1
            elif request.startswith(b"GET /status"):
                self.polls.append(time.monotonic())
            target, treatment = self.target, self.treatment
            if target is None:
                self.turned_away += 1
            elif listens and treatment is not None:
                treatment(peer)
            else:
                self._pass_on(request, peer, target, listens=listens)

    def _pass_on(self, request: bytes, peer: socket.socket, target: str, *, listens: bool) -> None:
        where = urlsplit(target)
        with socket.create_connection((where.hostname, where.port)) as behind:
            behind.sendall(request)
            while part := behind.recv(65536):
                self.events_sent += listens and b"\n\n" in part
                if listens and b"event: snapshot\n" in part:
                    self.polls_before_event = len(self.polls)
                peer.sendall(part)


@contextmanager
def proxy(target: str | None) -> Iterator[Proxy]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = Proxy(server, target)
        thread = threading.Thread(target=before.serve, daemon=True)
        thread.start()
        try:
            yield before
        finally:
            before.over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)
