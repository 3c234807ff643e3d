"""``warmwatch wait`` processes with one daemon: their requests, and how soon they end.

``WAITING`` sets their number. They are forked from a Python that has loaded the command, so that
they fit on a small machine, and count their connections. They wait for one run, while eight ranks
of another run step.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import psutil

from benchmarks.figure import Figure
from benchmarks.many import moving
from benchmarks.served import Daemon, daemon
from support.records import compiling, held, update, warm, write_record

CROWD = int(os.environ.get("WAITING", "200"))
RANKS, ROUNDS, SETTLE_SECONDS, SECONDS = 8, 9, 45.0, 20.0


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        stack.enter_context(moving(place, RANKS))
        folder = write_record(Path(place), compiling("awaited"), name="awaited")
        stack.enter_context(held(folder))
        environ = {**os.environ, "WARMWATCH_DIR": place, "WARMWATCH_OBSERVE": "off"}
        served = stack.enter_context(daemon(environ, "--gpu-interval", "off"))
        while b'"awaited"' not in served.ask("/status"):
            time.sleep(0.1)
        yield from _one(served, folder)
        yield from _many(served, folder)


def _one(served: Daemon, folder: Path) -> Iterator[Figure]:
    delays: list[float] = []
    for _ in range(ROUNDS):
        crowd = _Crowd(served, 1)
        time.sleep(1.0 + 0.37 * len(delays) % 0.25)
        delays += crowd.ended(folder)
        update(folder, compiling("awaited"))
        time.sleep(0.5)
    yield Figure(
        name="waiting: from the record to the end of one command, s",
        value=median(delays),
        detail=f"median of {ROUNDS}; {min(delays):.2f} to {max(delays):.2f}",
    )


def _many(served: Daemon, folder: Path) -> Iterator[Figure]:
    process = psutil.Process(served.pid)
    alone = _share(process)
    crowd = _Crowd(served, CROWD)
    time.sleep(SETTLE_SECONDS)
    before, began = crowd.connected, time.monotonic()
    share = _share(process)
    rate = (crowd.connected - before) / (time.monotonic() - began)
    resident = process.memory_info().rss / 1e6
    delays = crowd.ended(folder)
    yield Figure(name=f"waiting: requests a second of {CROWD} commands", value=rate)
    yield Figure(
        name="waiting: share of a core that they cost the daemon",
        value=share - alone,
        limit=0.15,
        detail=f"{share:.3f} with them, {alone:.3f} alone; {resident:.0f} MB",
    )
    yield Figure(
        name="waiting: from the record to the end of all of them, s",
        value=max(delays),
        detail=f"median {median(delays):.2f}",
    )
    yield Figure(
        name="waiting: commands that ended otherwise",
        value=crowd.failed.total(),
        limit=0,
        detail=", ".join(f"{count} with {code}" for code, count in crowd.failed.items()),
    )


def _share(process: psutil.Process) -> float:
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(SECONDS)
    return (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)


class _Crowd:
    """The processes of the commands."""

    def __init__(self, served: Daemon, count: int) -> None:
        from warmwatch_monitor.commands import wait as command  # noqa: F401 - loaded once for all of them

        self._counts = memoryview(mmap.mmap(-1, 8 * count)).cast("q")
        self._pids = set()
        self.failed = Counter[int]()  # by exit code
        for number in range(count):
            pid = os.fork()
            if not pid:
                self._become(number, ["wait", "awaited", "--address", served.address])
            self._pids.add(pid)

    @property
    def connected(self) -> int:
        """The number of connections of all."""
        return sum(self._counts)

    def _become(self, number: int, words: list[str]) -> NoReturn:
        from warmwatch_monitor.commands.cli import cli

        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        connect = socket.create_connection

        def counted(*where: Any) -> socket.socket:
            self._counts[number] += 1
            return connect(*where)

        socket.create_connection = counted  # type: ignore[assignment]
        code = 1
        try:
            cli.main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            os._exit(code)

    def ended(self, folder: Path) -> list[float]:
        """Seconds from the end of the warm-up to the end of each command."""
        update(folder, warm("awaited"))
        began, delays = time.monotonic(), []
        while self._pids:
            pid, status = os.wait()
            if pid in self._pids:
                self._pids.discard(pid)
                delays.append(time.monotonic() - began)
                self.failed[os.waitstatus_to_exitcode(status)] += 1
        del self.failed[0]
        return delays
