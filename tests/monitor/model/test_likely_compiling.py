"""Whether a training without the agent compiles, as far as its measured signs show it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmwatch_monitor.model.machine import (
    AGREEING,
    POLLS,
    ObservedTraining,
    Signs,
    likely_compiling,
)
from warmwatch_monitor.status.words.sentence import unattached_evidence

IDLE_GPU = {"gpu_ratio": 0.006, "watts": 118.0, "idle_watts": 80.0}
BUSY_GPU = {"gpu_ratio": 0.987, "watts": 686.0, "idle_watts": 80.0}
IDLE_POOL = {"workers_busy": 0, "workers_idle": 16}
BUSY_POOL = {"workers_busy": 7, "workers_idle": 9}
NO_POOL = {"workers_busy": 0, "workers_idle": 0}


@pytest.mark.parametrize(
    ("poll", "likely"),
    [
        (Signs(cpu_ratio=1.0, **IDLE_GPU, **IDLE_POOL), True),
        (Signs(cpu_ratio=0.1, **IDLE_GPU, **BUSY_POOL), True),
        (Signs(cpu_ratio=1.0, **BUSY_POOL), True),
        (Signs(cpu_ratio=1.0, **BUSY_GPU, **IDLE_POOL), False),
        (Signs(cpu_ratio=1.0, **BUSY_GPU, **NO_POOL), False),
        (Signs(cpu_ratio=1.0, **BUSY_GPU, **BUSY_POOL), None),
        (Signs(cpu_ratio=1.0, **IDLE_GPU, **NO_POOL), None),
        (Signs(cpu_ratio=0.0, **IDLE_GPU, **IDLE_POOL), None),
        (Signs(cpu_ratio=1.0, **IDLE_POOL), None),
        (Signs(cpu_ratio=1.0, gpu_ratio=0.99, watts=100, idle_watts=80, **IDLE_POOL), None),
        (Signs(), None),
    ],
    ids=[
        "the GPU waits for the main process",
        "the GPU waits for the workers",
        "workers busy, no GPU known",
        "full speed with an idle pool",
        "full speed without a pool",
        "busy workers with a busy GPU",
        "an idle GPU without a pool may wait for data",
        "all idle",
        "an idle pool is no evidence",
        "full utilization at idle power",
        "nothing known",
    ],
)
def test_the_signals_give_the_state(poll: Signs, likely: bool | None) -> None:
    assert likely_compiling([poll] * POLLS) is likely


POLL = st.builds(
    Signs,
    cpu_ratio=st.none() | st.floats(0, 4),
    workers_busy=st.none() | st.integers(0, 4),
    workers_idle=st.none() | st.integers(0, 4),
    gpu_ratio=st.none() | st.floats(0, 1),
    watts=st.none() | st.floats(50, 700),
    idle_watts=st.none() | st.floats(50, 120),
)


@given(st.lists(POLL, max_size=AGREEING - 1))
def test_fewer_polls_than_needed_give_no_state(polls: list[Signs]) -> None:
    assert likely_compiling(polls) is None


@given(st.lists(POLL, min_size=POLLS, max_size=POLLS))
def test_contradictory_polls_give_no_state(polls: list[Signs]) -> None:
    if {True, False} <= {likely_compiling([poll] * POLLS) for poll in polls}:
        assert likely_compiling(polls) is None


@given(st.lists(POLL, min_size=POLLS, max_size=POLLS))
def test_an_idle_worker_pool_is_not_a_sign_of_compiling(polls: list[Signs]) -> None:
    """Without a busy worker and without an idle GPU nothing shows one."""
    if all(not poll.workers_busy and poll.gpu_ratio is None for poll in polls):
        assert likely_compiling(polls) is not True


def words(poll: Signs, polls: int) -> list[str]:
    return unattached_evidence(ObservedTraining(pid=1, command="", signs=poll, polls=polls))


def test_the_evidence_holds_only_measured_values() -> None:
    assert words(Signs(cpu_ratio=1.0, **IDLE_GPU, **IDLE_POOL), POLLS) == [
        "its GPU at 1 %, 118 W (idle 80 W)",
        "0 of 16 compile workers busy",
        "the process uses 100 % of a core",
    ]
    assert words(Signs(workers_busy=1, workers_idle=0), POLLS) == ["1 of 1 compile worker busy"]
    assert words(Signs(workers_busy=0, workers_idle=0), 1) == [
        "no compile workers",
        "1 poll cannot show it; see status --watch",
    ]
    assert words(Signs(), 0) == []
