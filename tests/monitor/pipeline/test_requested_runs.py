"""Which runs count as requested, and for how long."""

from __future__ import annotations

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.model.budgets import REQUESTED_OF_A_PEER, REQUESTING_PEERS
from warmwatch_monitor.pipeline.poller import RequestedRuns


def test_a_run_counts_as_requested_for_30_s() -> None:
    now = [0]
    runs = RequestedRuns(Clock(monotonic_ns=lambda: now[0]))
    now[0] = 10**9
    runs.note("gpt2", "user 1")
    runs.note("bert@alice", "user 1")
    assert runs.names() == {"gpt2", "bert@alice", "bert"}
    now[0] += 29 * 10**9
    runs.note("gpt2", "user 2")
    assert runs.names() == {"gpt2", "bert@alice", "bert"}
    now[0] += 2 * 10**9
    assert runs.names() == {"gpt2"}


def test_a_client_evicts_only_its_own_requests() -> None:
    runs = RequestedRuns(Clock())
    runs.note("honest", "user 1")
    for number in range(1000):
        runs.note(f"flood{number}", "user 2")
    assert runs.names() == {
        "honest",
        *(f"flood{n}" for n in range(1000 - REQUESTED_OF_A_PEER, 1000)),
    }
    for number in range(REQUESTING_PEERS):
        runs.note("x", f"peer {number}")
    assert runs.names() == {"x"}
