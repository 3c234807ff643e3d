"""A proxy in front of a daemon: counts requests, and may mishandle ``/events``."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

Treatment = Callable[[socket.socket], object]


class Front:
    """A server that a command queries instead of a daemon.

    Attributes:
        target: the daemon's URL; ``None``: there is none. treatment: of who wants ``/events``, in
        place of the daemon's. silent: nobody is answered at all. asked: when ``/status`` was.
        listened: how often ``/events`` was asked for. told: parts of it that held an event.
        asked_unheard: how often ``/status`` was asked before the latest who listens heard the
        first event; ``None``: nobody has. turned_away: those who came while nobody was there.
    """

    def __init__(self, server: socket.socket, target: str | None) -> None:
        self._server, self.target = server, target
        self.address = f"127.0.0.1:{server.getsockname()[1]}"
        self.treatment: Treatment | None = None
        self.silent = False
        self.asked: list[float] = []
        self.asked_unheard: int | None = None
        self.listened = self.told = self.turned_away = 0
        self.over = threading.Event()

    @property
    def is_caught_up(self) -> bool:
        """Whether the client has polled since the first event, as it does once."""
        return self.asked_unheard is not None and len(self.asked) > self.asked_unheard

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
                self.listened += 1
            elif request.startswith(b"GET /status"):
                self.asked.append(time.monotonic())
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
                self.told += listens and b"\n\n" in part
                if listens and b"event: snapshot\n" in part:
                    self.asked_unheard = len(self.asked)
                peer.sendall(part)


@contextmanager
def front(target: str | None) -> Iterator[Front]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = Front(server, target)
        thread = threading.Thread(target=before.serve, daemon=True)
        thread.start()
        try:
            yield before
        finally:
            before.over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)
