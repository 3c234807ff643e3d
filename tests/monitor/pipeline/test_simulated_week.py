"""Days of a busy node, on a clock that the test turns: nothing grows from day to day.

``python -m faults.busy_day`` does the same for a day with real agents.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from support import builders as b
from support import sources
from support.documents import status
from support.records import write_record
from support.values import replace
from warmwatch.shared.record import identity, layout
from warmwatch_monitor import metrics
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.metrics.families import _known
from warmwatch_monitor.pipeline.poller import Poller
from warmwatch_monitor.sources.records.liveness import here

SECOND = 10**9
POLLS, RUNS = 1, 3  # in an hour; that begin in each poll
REMAIN = 24  # records that the agent's cleanup leaves


class Node:
    """A poller and the records of a node, at a time of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.now, self.begun = directory, 10**6 * SECOND, 0
        clock = Clock(monotonic_ns=lambda: self.now, epoch=lambda: self.now / SECOND)
        self.poller: Poller = sources.poller(
            directories=(str(directory),), clock=clock, host=sources.no_host
        )
        self.answers: list[int] = []

    def poll(self) -> None:
        """An hour later: some runs ended, others began, the oldest records are removed."""
        self.now += 3600 // POLLS * SECOND
        for number in range(RUNS):
            self._begin(number)
        for folder in sorted(self.directory.iterdir())[:-REMAIN]:
            shutil.rmtree(folder)
        snapshot = self.poller.poll_once()
        assert snapshot.refusals == ()
        assert all(source.up for source in snapshot.sources), snapshot.sources
        assert len(snapshot.runs) >= RUNS
        answer = json.dumps(status(snapshot))
        self.answers.append(len(answer) + len(metrics.render(snapshot, None)[0]))

    def _begin(self, number: int) -> None:
        self.begun += 1
        how = ("finished", "failed", "")[number % 3]
        base = b.ended(how) if how else b.WARM
        slot = b.moved(base, self.now, self.now)
        run, pid = f"run{self.begun}", 10**6 + self.begun
        known = replace(slot.identity, run=run, pid=pid, boot_id=here().boot)
        line = {"t": self.now, "event": "compilation", "id": f"0/{self.begun}", "kind": "forward"}
        more = {"seconds": 1.0, "category": "shape", "reason": f"size {self.begun}", "name": run}
        name = f"{self.begun:06d}"
        write_record(
            self.directory, replace(slot, identity=known), name=name, events=[{**line, **more}] * 20
        )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("number", [3, pytest.param(7, marks=pytest.mark.long)])
def test_memory_after_many_days_equals_that_after_two(tmp_path: Path, number: int) -> None:
    node = Node(tmp_path)
    days: list[tuple[int, int, int, int]] = []
    for hour in range(1, 24 * number + 1):
        for _ in range(POLLS):
            node.poll()
        if hour % 24 == 0:
            for cached in (layout._compile, identity.unseal_identity, _known):
                cached.cache_clear()  # bounded, and full only after days
            gc.collect()
            descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of this process
            counts = len(gc.get_objects()), sys.getallocatedblocks()
            days.append((*counts, descriptors, threading.active_count()))
    assert node.begun == 24 * number * POLLS * RUNS
    (objects, blocks, descriptors, threads), last = days[1], days[-1]
    assert last[0] < 1.01 * objects, days
    assert last[1] < 1.01 * blocks, days
    assert last[2:] == (descriptors, threads), days
    day = 24 * POLLS
    assert max(node.answers[-day:]) < 1.05 * max(node.answers[day : 2 * day])
