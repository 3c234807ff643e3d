"""Which runs count as requested, and for how long."""

from __future__ import annotations

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.model.budgets import REQUESTED_RUNS
from warmwatch_monitor.pipeline.poller import RequestedRuns


def test_a_run_counts_as_requested_for_30_s() -> None:
    now = [0]
    runs = RequestedRuns(Clock(monotonic_ns=lambda: now[0]))
    now[0] = 10**9
    runs.note("gpt2")
    runs.note("bert@alice")
    assert runs.names() == {"gpt2", "bert@alice", "bert"}
    now[0] += 29 * 10**9
    runs.note("gpt2")
    assert runs.names() == {"gpt2", "bert@alice", "bert"}
    now[0] += 2 * 10**9
    assert runs.names() == {"gpt2"}


def test_the_names_that_were_requested_last_are_kept() -> None:
    runs = RequestedRuns(Clock())
    for number in range(1000):
        runs.note(f"flood{number}")
    assert runs.names() == {f"flood{n}" for n in range(1000 - REQUESTED_RUNS, 1000)}
