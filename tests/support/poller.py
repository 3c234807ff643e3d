"""A monitor of 20 looks a second beside a training, each with the moments it was taken between."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from warmwatch_monitor.runs import group
from warmwatch_monitor.sources.records import RecordsSource

INTERVAL_NS = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the monitor said, of facts read between two monotonic times in nanoseconds."""

    before: int
    after: int
    state: str
    compiling: bool
    warm: bool
    steps: int
    conditions: tuple[str, ...] = ()


class Poller:
    """Looks at a record directory while the ``with`` lasts; ``samples`` is what it saw."""

    def __init__(self, records: Path) -> None:
        self.samples: list[Sample] = []
        self._source = RecordsSource([str(records)], retention=3600)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Poller:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_NS / 1e9):
            self.look()
        self.look()

    def look(self) -> None:
        before = time.monotonic_ns()
        reading = self._source.read()
        after = time.monotonic_ns()
        for run in group(reading.records, {}, after):
            for rank in run.ranks:
                said = rank.judgement
                self.samples.append(
                    Sample(
                        before=before,
                        after=after,
                        state=said.state.value,
                        compiling=said.compiling,
                        warm=said.warm,
                        steps=rank.figures.steps.count,
                        conditions=said.conditions,
                    )
                )
