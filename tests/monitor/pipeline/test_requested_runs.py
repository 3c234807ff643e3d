"""Which runs count as requested, and for how long."""

from __future__ import annotations

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.model.budgets import REQUESTED_RUNS
from warmwatch_monitor.pipeline.poller import RequestedRuns


def test_the_names_that_were_requested_last_are_kept() -> None:
    runs = RequestedRuns(Clock())
    for number in range(1000):
        runs.note(f"flood{number}")
    assert runs.names() == {f"flood{n}" for n in range(1000 - REQUESTED_RUNS, 1000)}
