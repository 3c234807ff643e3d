"""No step for a long time without a stall: the sentence names the progress."""

from __future__ import annotations

import pytest

from support import builders as b
from support.builders import NOW, view_of
from support.documents import status
from support.values import replace
from warmwatch.shared.states import State
from warmwatch_monitor.commands.status import exit_code
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.status.words.sentence import summary

QUIET = b.STALLED  # no step for 75 s, with a limit of 60 s
BATCHES = replace(
    QUIET,
    steps=replace(QUIET.steps, batches=80, last_batch_ns=b.ago(0.3), batch_wait_ns=2 * b.SECOND),
)
BUSY = ProcessReading(tree_read=True, pid=4711, cpu_seconds=90.0, resident_bytes=1, cpu_ratio=1.0)
GPU = b.gpu(utilization_ratio=0.98, power_watts=650.0)


def at_work(view: RankView) -> RankView:
    """``view``, of which the monitor saw work a second ago."""
    return view_of(view.record, NOW, working=b.ago(1), process=view.process, gpus=view.gpus)


MOVES = {
    "batches": (b.view(BATCHES), "; batches go on: an evaluation?"),
    "batches first": (
        at_work(b.view(BATCHES, gpus=(GPU,), process=BUSY)),
        "; batches go on: an evaluation?",
    ),
    "gpu": (at_work(b.view(QUIET, gpus=(GPU,))), "; its GPU works (98 %, 650 W)"),
    "process": (at_work(b.view(QUIET, process=BUSY)), "; the process works (100 % of a core)"),
    "somewhere": (at_work(b.view(QUIET)), ""),
}


@pytest.mark.parametrize(("view", "words"), MOVES.values(), ids=MOVES)
def test_activity_without_steps_is_reported_and_is_not_a_stall(view: RankView, words: str) -> None:
    snapshot = b.snapshot(view)
    assert summary(snapshot) == f"gpt2: {b.head(view)}; warm since step 4{words}"
    assert view.judgement.state is State.WARM
    assert exit_code(status(snapshot)) == 0


def test_a_spinning_collective_does_not_count_as_work() -> None:
    spins = b.gpu(utilization_ratio=1.0, power_watts=140.0)
    view = at_work(b.view(QUIET, gpus=(spins,)))
    assert summary(b.snapshot(view)) == f"gpt2: {b.head(view)}; warm since step 4"


def test_a_rank_that_waits_for_a_working_rank_reports_it() -> None:
    waits = at_work(b.view(b.as_rank(QUIET, 0, 2)))
    later = replace(BATCHES, steps=replace(BATCHES.steps, last_step_ns=b.ago(70)))
    evaluates = b.view(b.as_rank(later, 1, 2))
    expected = f"gpt2: {b.head(waits)}; warm since step 4; another rank works"
    assert summary(b.snapshot(waits, evaluates)) == expected


def test_without_progress_it_is_stalled_and_with_steps_nothing_is_reported() -> None:
    long_ago = replace(BATCHES.steps, last_batch_ns=b.ago(74))
    stalled = b.snapshot(b.view(replace(QUIET, steps=long_ago)))
    assert stalled.runs[0].state is State.STALLED
    assert exit_code(status(stalled)) == 4
    assert "no step" not in summary(b.snapshot(at_work(b.view(b.WARM, process=BUSY))))


def test_batches_and_the_wait_for_them_are_in_the_answer() -> None:
    (rank,) = status(b.snapshot(b.view(BATCHES)))["runs"][0]["ranks"]
    assert rank["batches"] == {"count": 80, "wait_seconds": 2.0}
    (rank,) = status(b.snapshot(b.view(QUIET)))["runs"][0]["ranks"]
    assert rank["batches"] == {"count": 0, "wait_seconds": None}
    blind = replace(BATCHES, identity=replace(BATCHES.identity, missing=("batches",)))
    (rank,) = status(b.snapshot(b.view(blind)))["runs"][0]["ranks"]
    assert rank["batches"] is None
