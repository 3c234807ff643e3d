"""A GPU driver that fails and comes back 100 times: ``python -m faults.gpu_driver``.

A real daemon over the stand-in for NVIDIA's library: the driver is unloaded, shut down under the
daemon, upgraded under it, does not count its GPUs, and hangs, in turn, ``CYCLES`` (100) times, and
comes back each time. Meanwhile ``/metrics`` is requested without a pause.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from support.daemon import daemon_process
from support.nvml import Standin, board
from support.records import wait_until

CYCLES = int(os.environ.get("CYCLES", "100"))
_WARM = 10  # cycles after which nothing may grow any more


def main() -> None:
    """Print what was seen every ten cycles, and at the end."""
    with tempfile.TemporaryDirectory() as place:
        folder, records = Path(place, "nvml"), Path(place, "records")
        folder.mkdir()
        records.mkdir()
        nvml = Standin(folder)
        nvml.say(board(0), board(1))
        arguments = ("--dir", str(records), "--interval", "0.2", "--gpu-interval", "0.1")
        with daemon_process(*arguments, **nvml.environment) as (process, url):
            wait_until(lambda: _up(url) == "1.0")
            with _polled(url) as spent:
                for line in _cycles(nvml, url, psutil.Process(process.pid)):
                    print(line, flush=True)
            print(f"/metrics: {len(spent)} answers, none failed, slowest {max(spent) * 1e3:.0f} ms")


def _faults(nvml: Standin) -> list[tuple[str, Callable[[], None]]]:
    return [
        ("unloaded", lambda: nvml.say(board(0, lost="9"), board(1, lost="9"), init="9")),
        ("shut down", lambda: nvml.say(board(0, lost="1"), board(1, lost="1"))),
        ("upgraded", lambda: nvml.say(board(0, lost="18"), board(1, lost="18"))),
        ("does not count", lambda: nvml.say(board(0, lost="1"), count="!999")),
        ("hangs", lambda: nvml.say(board(0, power="hang"), board(1))),
    ]


def _cycles(nvml: Standin, url: str, process: psutil.Process) -> Iterator[str]:
    faults, before = _faults(nvml), ""
    for cycle in range(CYCLES):
        _, make = faults[cycle % len(faults)]
        make()
        wait_until(lambda: _up(url) == "0.0")
        nvml.say(board(0), board(1))
        wait_until(lambda: _up(url) == "1.0")
        if (cycle + 1) % _WARM == 0:
            memory, fds = process.memory_info().rss / 1e6, process.num_fds()
            now = f"{process.num_threads()} threads, {fds} descriptors"
            before = before or f"{memory:.1f} MB"
            yield f"{cycle + 1} times: {memory:.1f} MB (after {_WARM}: {before}), {now}"


def _up(url: str) -> str:
    lines = _metrics(url).splitlines()
    name = 'warmwatch_source_up{source="nvml"} '
    return next(line.removeprefix(name) for line in lines if line.startswith(name))


def _metrics(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as reply:
        return str(reply.read().decode())


@contextmanager
def _polled(url: str) -> Iterator[list[float]]:
    """Seconds of each answer; one that fails ends the program."""
    spent: list[float] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.02):
            began = time.perf_counter()
            try:
                _metrics(url)
            except OSError as error:
                print(f"/metrics did not answer: {error}", flush=True)
                os._exit(1)
            spent.append(time.perf_counter() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield spent
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
