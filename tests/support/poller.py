"""A monitor that polls a training 20 times a second, each poll with its begin and end.

The training may request a poll and wait for it (``requested_polls.py``). So the monitor sees every
state that lasts from one step to the next, however slow the machine is.
"""

from __future__ import annotations

import os
import select
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from support.requested_polls import REQUESTED, TAKEN
from warmwatch_monitor.model.figures import Underway
from warmwatch_monitor.pipeline.judging import Judging, OtherReadings
from warmwatch_monitor.sources.records.source import RecordsSource
from warmwatch_monitor.status.words.run import run_answer

INTERVAL_NS = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A judgement of the monitor, on facts read between two monotonic times in nanoseconds.

    Attributes:
        requested: the training requested this poll after a step, and waited for it.
        text: the run's headline and its details, as one text. age: of the last step, in seconds.
        underway: what compiles, as the sentence names it; ``None`` if it names nothing.
        waited: for how long the training's threads had been runnable without a core by then, as the
            kernel counts it: a delay by the machine, not by the training.
    """

    before: int
    after: int
    state: str
    compiling: bool
    warm: bool
    steps: int
    conditions: tuple[str, ...] = ()
    text: str = ""
    age: float | None = None
    underway: Underway | None = None
    requested: bool = False
    waited: int = 0


class Poller:
    """Polls a record directory while the ``with`` lasts; ``samples`` are the results."""

    def __init__(self, records: Path, pipes: Path) -> None:
        self.samples: list[Sample] = []
        self._source = RecordsSource([str(records)], retention=3600)
        self._judging = Judging()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._waits: dict[str, int] = {}
        self._requested, self._taken = (_fifo(pipes / name) for name in (REQUESTED, TAKEN))

    def __enter__(self) -> Poller:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._requested)
        os.close(self._taken)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                requested, _, _ = select.select([self._requested], [], [], INTERVAL_NS / 1e9)
                if requested:
                    os.read(self._requested, 1)
                self.poll(requested=bool(requested))
                if requested:
                    os.write(self._taken, b"\n")
            self.poll()
        finally:  # whatever broke, the training must not wait for it
            os.write(self._taken, b"\n" * 1000)

    def poll(self, *, requested: bool = False) -> None:
        before = time.monotonic_ns()
        reading = self._source.read()
        for pid in {one.pid for one in reading.records if one.pid is not None}:
            self._waits |= _waits(pid)
        after = time.monotonic_ns()
        runs, _ = self._judging.of(reading.records, OtherReadings(now_ns=after), None)
        for run in runs:
            words = run_answer(run)
            for rank in run.ranks:
                judgement = rank.judgement
                self.samples.append(
                    Sample(
                        before=before,
                        after=after,
                        state=judgement.state.value,
                        compiling=judgement.compiling,
                        warm=judgement.warm,
                        steps=rank.figures.steps.count,
                        conditions=judgement.conditions,
                        text="; ".join([words.summary, *words.details]),
                        age=rank.figures.progress.last_step_age_seconds,
                        underway=rank.figures.log.underway,
                        requested=requested,
                        waited=sum(self._waits.values()),
                    )
                )


def _fifo(path: Path) -> int:
    """Open for both ends, so that it neither blocks nor ends when the training does."""
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _waits(pid: int) -> dict[str, int]:
    """Nanoseconds that each of its threads was ready and waited; empty if uncounted."""
    waits = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waits[str(path)] = int(path.read_text().split()[1])
        except (OSError, IndexError):  # the thread has ended meanwhile
            continue
    return waits
