"""A daemon for a benchmark: started on a free port, queried over HTTP, ended with the ``with``."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running daemon: its process, and where it serves."""

    pid: int
    address: str

    def ask(self, path: str) -> bytes:
        """The body at ``path``."""
        with urllib.request.urlopen(f"http://{self.address}{path}") as reply:
            return bytes(reply.read())


def free_port() -> int:
    """A port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def daemon(environ: Mapping[str, str], *options: str) -> Iterator[Daemon]:
    """``warmwatch serve`` with ``options``."""
    command = [sys.executable, "-m", "warmwatch_monitor", "serve", "--address", "127.0.0.1:0"]
    process = subprocess.Popen([*command, *options], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        line = process.stdout.readline()
        (address,) = re.findall(r"http://([\d.:]+)", line)
        yield Daemon(process.pid, address)
    finally:
        process.terminate()
        process.wait()


def at_rest(daemon: Daemon, run: str, *, seconds: float = 10.0) -> dict[str, Any]:
    """The status of ``run`` once two polls a second apart agree on its time."""
    before: Any = None
    until = time.monotonic() + seconds
    while True:
        status: dict[str, Any] = json.loads(daemon.ask(f"/status?run={run}"))
        rank = status["runs"][0]["ranks"][0]
        now = (rank["steps"], rank.get("energy"))
        if now == before or time.monotonic() > until:
            return status
        before = now
        time.sleep(1.5)
