"""A busy node for 24 hours, at speed: ``python -m faults.busy_day``.

``RANKS`` (8) runs live at any time, each for ten minutes: it compiles, steps, recompiles for a new
shape, and finishes, fails or is killed; then another one begins. What they write is written by the
agent's own ledger and step marks, and pruned by its own rule; their locks are held by a process of
their own. The daemon's poller, sources, judgement and both answers run on a clock that is turned
``LOOK`` (10) seconds on from look to look, ``HOURS`` (24) long, and every third time both answers
are made. What is printed must not grow.
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

from support import sources
from support.ranks import SECOND, Rank
from warmwatch import record
from warmwatch._ending import End
from warmwatch._neighbours import prune
from warmwatch_monitor.clock import Clock
from warmwatch_monitor.export import series
from warmwatch_monitor.export.answer import status
from warmwatch_monitor.model import GpuReading
from warmwatch_monitor.poller import Poller
from warmwatch_monitor.sources.readings import Readings

HOURS = float(os.environ.get("HOURS", "24"))
LOOK = int(os.environ.get("LOOK", "10"))
RANKS = int(os.environ.get("RANKS", "8"))
LIFE, COMPILES, SHAPE_EVERY = 600, 60, 120  # seconds
BEGAN = 1_000 * SECOND
_SCRAPE = 3  # looks
_HOLD = """
import fcntl, sys
held = {}
for line in sys.stdin:
    verb, path = line.split()
    if verb == "hold":
        held[path] = open(path, "r+b")
        fcntl.lockf(held[path], fcntl.LOCK_EX)
    else:
        held.pop(path).close()
    print("done", flush=True)
"""


class Locks:
    """A process that holds the locks of the living."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, verb: str, slot: Path) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{verb} {slot}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


class Run:
    """One run of one rank, from its first compilation to its end."""

    def __init__(self, number: int, directory: Path, locks: Locks, now: int) -> None:
        self._rank, self._locks, self._number = Rank(), locks, number
        self._rank.now = self._rank.attached = self._began = now
        self._identity = record.Identity(
            run=f"run-{number}", launch=f"process:{number}", gpus=(f"GPU-{number % RANKS}",)
        )
        self._rank.ledger.begin("dynamo")
        self._compiles = True
        aside = directory / f".{number}"
        aside.mkdir()
        (aside / record.SLOT).write_bytes(self._image())
        (aside / record.JOURNAL).touch()
        self._folder = aside.rename(directory / f"run-{number}")
        locks.tell("hold", self._folder / record.SLOT)

    def goes_on(self, now: int) -> bool:
        """Until ``now``; whether it does after that."""
        age = (now - self._began) // SECOND
        if age >= LIFE:
            self._end()
            return False
        if self._compiles and age >= COMPILES:
            self._compiled("0/0", {})
        while not self._compiles and self._rank.now < now:
            self._rank.wait(1)
            self._rank.step()
            if (self._rank.now - self._began) // SECOND % SHAPE_EVERY == 0:
                self._recompile()
        self._rank.now = now
        self._write()
        return True

    def _recompile(self) -> None:
        where = {"name": "forward", "file": "train.py", "line": 7}
        self._rank.ledger.recompile("tensor 'x' size mismatch at index 0", "shape", where)
        self._rank.ledger.begin("dynamo")
        self._rank.wait(3)
        self._compiled("0/1", {"category": "shape", "reason": "tensor 'x' size mismatch"})

    def _compiled(self, compile_id: str, why: dict[str, str]) -> None:
        self._rank.ledger.compilation("forward", {"id": compile_id, "seconds": 3.0, **why})
        self._rank.ledger.end("dynamo")
        self._compiles = False

    def _end(self) -> None:
        ends = (End(how="finished", code=0), End(how="failed", code=1), None)
        if (end := ends[self._number % len(ends)]) is not None:
            self._rank.ledger.exit(end)
        self._write()
        self._locks.tell("drop", self._folder / record.SLOT)

    def _write(self) -> None:
        with (self._folder / record.SLOT).open("r+b") as slot:
            slot.write(self._image())
        notes, self._rank.store.notes = self._rank.store.notes, []
        with (self._folder / record.JOURNAL).open("a") as journal:
            for event, at, values in notes:
                known = {name: value for name, value in values.items() if value is not None}
                journal.write(json.dumps({"t": at, "event": event, **known}) + "\n")

    def _image(self) -> bytes:
        image = bytearray(self._rank.store.buffer)
        header = record.Header(
            warm_steps=3,
            attached_ns=self._began,
            attached_epoch_ns=self._began,
        )
        packed = record.pack_header(header)
        image[: len(packed)] = packed
        record.store_identity(image, self._identity)
        return bytes(image)


class Day:
    """The node, and the daemon that watches it."""

    def __init__(self, directory: Path, locks: Locks) -> None:
        self.now, self.number, self._looks = BEGAN, 0, 0
        self._directory, self._locks = directory, locks
        self._runs: list[Run] = []
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
        self._runs = [run for run in self._runs if run.goes_on(self.now)]
        while busy and len(self._runs) < RANKS:
            self._runs.append(Run(self.number, self._directory, self._locks, self.now))
            self.number += 1
            prune(self._directory, own=None)
            if self.number <= RANKS:
                break  # so that they do not end together
        snapshot = self.poller.poll_once()
        assert all(one.up for one in snapshot.sources), snapshot.sources
        assert snapshot.refusals == ()
        self._looks += 1
        if self._looks % _SCRAPE != 1:
            return None
        answer = len(json.dumps(status(snapshot)))
        text = series.render(snapshot, None, version="0")[0]
        return sum(not line.startswith(b"#") for line in text.splitlines()), answer


@contextmanager
def _locks() -> Iterator[Locks]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Locks(process)
        finally:
            process.kill()


def main() -> None:
    """A line for each hour."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place, _locks() as locks:
        day = Day(Path(place), locks)
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
        if (told := day.pass_()) is not None:
            seen.append(told)
        if (day.now - began) / SECOND < hour * 3600:
            continue
        gc.collect()
        counts = [count for count, _ in seen]
        print(
            f"hour {hour:>2}: {day.number:>5} runs, {process.memory_info().rss / 1e6:6.1f} MB, "
            f"{len(gc.get_objects()):>7} objects, {process.num_fds():>3} descriptors, "
            f"{threading.active_count()} threads, {min(counts)} to {max(counts)} series, "
            f"/status to {max(size for _, size in seen) / 1e3:.0f} KB",
            flush=True,
        )
        seen.clear()
        hour += 1


if __name__ == "__main__":
    main()
