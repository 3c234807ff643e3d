"""A busy node for 24 hours, at speed: ``python -m faults.busy_day``.

``RANKS`` (8) runs live at any time, each for ten minutes: it compiles, steps, recompiles for a new
shape, and finishes, fails or is killed; then another one begins. They are a process of their own
(``faults.node``), in which the agent's own ledger and step marks say what is written and its own
rule prunes. The daemon's poller, sources, judgement and both answers run in this one, on a clock
that is turned ``LOOK`` (10) seconds on from look to look, ``HOURS`` (24) long, and every third time
both answers are made. What is printed must not grow.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from faults.node import LIFE, RANKS
from support import sources
from support.documents import status
from support.ranks import SECOND
from warmwatch_monitor import metrics
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.pipeline.poller import Poller
from warmwatch_monitor.sources.listed import Readings

HOURS = float(os.environ.get("HOURS", "24"))
LOOK = int(os.environ.get("LOOK", "10"))
BEGAN = 1_000 * SECOND
_SCRAPE = 3  # looks


class Day:
    """The daemon, and the node that it watches."""

    def __init__(self, directory: Path, node: subprocess.Popen[str]) -> None:
        self.now, self.begun, self._looks = BEGAN, 0, 0
        self._node = node
        clock = Clock(monotonic_ns=lambda: self.now, epoch=lambda: self.now / SECOND)
        self.poller: Poller = sources.poller(
            directories=(str(directory),), clock=clock, nvml=self._gpus
        )

    def _gpus(self, _others: Readings) -> tuple[GpuReading, ...]:
        return tuple(
            GpuReading(
                uuid=f"GPU-{number}",
                index=number,
                at_ns=self.now,
                utilization_ratio=0.9,
                energy_joules=self.now / SECOND * 500,
                read_energy_ns=self.now,
            )
            for number in range(RANKS)
        )

    def pass_(self, *, busy: bool = True) -> tuple[int, int] | None:
        """One look on: every third time how many series there are, and how long ``/status`` is."""
        self.now += LOOK * SECOND
        assert self._node.stdin
        assert self._node.stdout
        self._node.stdin.write(f"{self.now} {busy:d}\n")
        self._node.stdin.flush()
        self.begun = int(self._node.stdout.readline())
        snapshot = self.poller.poll_once()
        assert all(one.up for one in snapshot.sources), snapshot.sources
        assert snapshot.refusals == ()
        self._looks += 1
        if self._looks % _SCRAPE != 1:
            return None
        answer = len(json.dumps(status(snapshot)))
        text = metrics.render(snapshot, None, version="0")[0]
        return sum(not line.startswith(b"#") for line in text.splitlines()), answer


@contextmanager
def _node(directory: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "faults.node", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait()


def main() -> None:
    """A line for each hour."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place, _node(Path(place)) as node:
        day = Day(Path(place), node)
        empty = day.pass_(busy=False)
        report(day)
        left = empty
        for _ in range(2 * LIFE // LOOK + 2 * 900 // LOOK):
            left = day.pass_(busy=False) or left
        print(f"series and bytes before the first run {empty}, after the last one {left}")


def report(day: Day) -> None:
    """Let the hours pass, and print what they leave."""
    process, began = psutil.Process(), day.now
    seen: list[tuple[int, int]] = []
    hour = 1
    while (day.now - began) / SECOND < HOURS * 3600:
        if (event := day.pass_()) is not None:
            seen.append(event)
        if (day.now - began) / SECOND < hour * 3600:
            continue
        gc.collect()
        counts = [count for count, _ in seen]
        print(
            f"hour {hour:>2}: {day.begun:>5} runs, {process.memory_info().rss / 1e6:6.1f} MB, "
            f"{sys.getallocatedblocks():>7} blocks, {len(gc.get_objects()):>6} objects, "
            f"{process.num_fds():>3} descriptors, "
            f"{threading.active_count()} threads, {min(counts)} to {max(counts)} series, "
            f"/status to {max(size for _, size in seen) / 1e3:.0f} KB",
            flush=True,
        )
        seen.clear()
        hour += 1


if __name__ == "__main__":
    main()
