"""A proxy in front of a daemon, which counts its queries."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """A server that a command queries instead of a daemon.

    Attributes:
        target: the daemon's URL; ``None``: there is none.
        silent: no request is answered.
        polls: when ``/status`` was requested.
        turned_away: number of requests while there was no daemon.
    """

    def __init__(self, server: socket.socket, target: str | None) -> None:
        self._server, self.target = server, target
        self.address = f"127.0.0.1:{server.getsockname()[1]}"
        self.silent = False
        self.polls: list[float] = []
        self.turned_away = 0
        self.over = threading.Event()

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
            if request.startswith(b"GET /status"):
                self.polls.append(time.monotonic())
            if self.target is None:
                self.turned_away += 1
                return
            where = urlsplit(self.target)
            with socket.create_connection((where.hostname, where.port)) as behind:
                behind.sendall(request)
                while part := behind.recv(65536):
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
