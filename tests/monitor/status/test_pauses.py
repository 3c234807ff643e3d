"""Saving, evaluation and data wait: each is reported as such, and never as a stall."""

from __future__ import annotations

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared import verdict
from warmwatch.shared.record import CompileCounts, Slot, StepCounts
from warmwatch_monitor.metrics import render
from warmwatch_monitor.pipeline.runs import Circumstances, group
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.sentence import summary


def saves(since: float, base: Slot = b.STALLED) -> Slot:
    counts = replace(base.compile, saving_since_ns=b.ago(since), saving_ns=2 * b.SECOND)
    return replace(base, compile=counts)


def test_a_saving_rank_is_not_stalled_and_reports_the_save() -> None:
    view = b.view(saves(74))
    assert view.judgement.state.value == "warm"
    expected = f"gpt2: {b.head(view)}; no step for 75 s; saving a checkpoint for 74 s"
    assert summary(b.snapshot(view)) == expected


def test_a_save_is_reported_immediately_and_not_only_near_a_stall() -> None:
    slot = replace(saves(5), steps=replace(b.WARM.steps, last_step_ns=b.ago(5)))
    view = b.view(slot)
    assert summary(b.snapshot(view)) == f"gpt2: {b.head(view)}; saving a checkpoint for 5.0 s"


def test_a_save_that_does_not_end_becomes_a_stall_with_that_cause() -> None:
    steps = replace(b.WARM.steps, last_step_ns=b.ago(700))
    view = b.view(replace(saves(699), steps=steps))
    assert view.judgement.state.value == "stalled"
    assert "saving a checkpoint for 12 min" in summary(b.snapshot(view))


def test_a_rank_is_not_stalled_right_after_a_long_save() -> None:
    counts = replace(b.STALLED.compile, saving_ns=70 * b.SECOND, saved_ns=b.ago(1))
    steps = replace(b.WARM.steps, last_step_ns=b.ago(90))
    view = b.view(replace(b.STALLED, steps=steps, compile=counts))
    assert view.judgement.state.value == "warm"


def test_ranks_that_wait_for_a_saving_rank_are_not_stalled() -> None:
    slots = [b.as_rank(saves(74), 0, 2), b.as_rank(b.STALLED, 1, 2)]
    readings = [b.view(slot).record for slot in slots]
    (run,) = group(readings, Circumstances(now_ns=b.NOW))
    assert run.state.value == "warm"
    waits = replace(run, ranks=run.ranks[::-1])
    assert "; rank 0 is saving a checkpoint for 74 s" in summary(b.Snapshot(**_of(waits)))


def _of(run: object) -> dict[str, object]:
    return {"epoch": b.EPOCH, "now_ns": b.NOW, "runs": (run,)}


def test_the_time_of_pauses_is_in_the_evidence_the_answer_and_the_series() -> None:
    slot = saves(43, b.WARM)
    reported = {"batches": 9, "last_batch_ns": b.ago(50), "batch_wait_ns": 12 * b.SECOND}
    steps = replace(slot.steps, last_step_ns=b.ago(44), **reported)
    snapshot = b.snapshot(b.view(replace(slot, steps=steps)))
    (view,) = snapshot.runs[0].ranks
    assert (
        "since it attached 12 s went to waiting for data, 45 s went to saving checkpoints"
    ) in evidence(view)
    pauses = status(snapshot)["runs"][0]["ranks"][0]["pauses"]
    assert (pauses["data_seconds"], pauses["checkpoint_seconds"]) == (12.0, 45.0)
    assert pauses["saving_since"] == b.EPOCH - 43
    text = render(snapshot, None)[0].decode()
    assert 'warmwatch_checkpoint_seconds_total{rank="0",run="gpt2"} 45.0' in text


def test_a_notebook_between_cells_is_reported_with_the_time() -> None:
    counts = replace(b.STALLED.compile, between_cells_since_ns=b.ago(74))
    snapshot = b.snapshot(b.view(replace(b.STALLED, compile=counts)))
    assert summary(snapshot).endswith("; between the cells of a notebook for 74 s")
    reported = status(snapshot)["runs"][0]["ranks"][0]
    assert (reported["state"], reported["pauses"]["between_cells_since"]) == ("warm", b.EPOCH - 74)
    text = render(snapshot, None)[0].decode()
    assert "warmwatch_between_cells_start_timestamp_seconds{" in text
    assert "between_cells" not in render(b.snapshot(b.view(b.WARM)), None)[0].decode()


def test_a_torch_without_the_hook_points_has_no_pauses() -> None:
    missing = replace(b.WARM.identity, missing=("saving",))
    snapshot = b.snapshot(b.view(replace(b.WARM, identity=missing)))
    pauses = status(snapshot)["runs"][0]["ranks"][0]["pauses"]
    assert pauses["checkpoint_seconds"] is None
    assert "warmwatch_checkpoint_seconds_total{" not in render(snapshot, None)[0].decode()


def test_a_process_that_died_during_a_save_is_not_saving() -> None:
    slot = saves(43, b.WARM)
    slot = replace(slot, steps=replace(slot.steps, last_step_ns=b.ago(44)))
    view = b.view(slot, alive=False, gone=10)
    assert view.figures.pauses.checkpoint_seconds == 35.0
    assert "saving" not in summary(b.snapshot(view))


def test_a_save_whose_end_was_lost_is_over_at_the_next_step() -> None:
    """A signal handler may raise before the end is recorded; the save must still end."""
    slot = b.slot(
        StepCounts(steps=9, last_step_ns=b.ago(1)), CompileCounts(saving_since_ns=b.ago(50))
    )
    assert verdict.saving_since_ns(slot.steps, slot.compile) == 0
    assert b.view(slot).figures.pauses.saving_for_seconds is None
    earlier = replace(slot.steps, last_step_ns=b.ago(60))
    assert verdict.saving_since_ns(earlier, slot.compile) == b.ago(50)


def evaluates(since: float, base: Slot = b.STALLED) -> Slot:
    reported = {"evaluations": 2, "evaluating_ns": 8 * b.SECOND}
    counts = replace(base.compile, evaluating_since_ns=b.ago(since), **reported)
    return replace(base, compile=counts)


def test_an_evaluating_rank_is_not_stalled_and_reports_the_evaluation() -> None:
    view = b.view(evaluates(61))
    assert view.judgement.state.value == "warm"
    expected = f"gpt2: {b.head(view)}; no step for 75 s; evaluating for 61 s"
    assert summary(b.snapshot(view)) == expected
    hangs = evaluates(3700)
    steps = replace(b.WARM.steps, last_step_ns=b.ago(3701))
    assert b.view(replace(hangs, steps=steps)).judgement.state.value == "stalled"


def test_a_program_that_is_over_and_still_exits_does_not_evaluate() -> None:
    """Its last evaluation has no ``train()``; the counter fell back when the process was gone."""
    slot = evaluates(61)
    slot = replace(slot, compile=replace(slot.compile, ended_ns=b.ago(51), end_code=1))
    exiting, gone = b.view(slot), b.view(slot, alive=False, gone=1)
    assert exiting.figures.pauses.evaluations == gone.figures.pauses.evaluations == 3
    assert exiting.figures.pauses.evaluation_seconds == 18.0
    assert gone.figures.pauses.evaluation_seconds == 18.0
    assert exiting.figures.pauses.evaluating_since is None
    assert "evaluating" not in summary(b.snapshot(exiting))


def test_a_rank_that_compiles_during_an_evaluation_is_recompiling() -> None:
    slot = evaluates(61)
    counts = replace(slot.compile, begun=9, active_since_ns=b.ago(5), active_phase=1)
    view = b.view(replace(slot, compile=counts))
    assert view.judgement.state.value == "recompiling"


def test_evaluation_time_is_reported_once_an_evaluation_was() -> None:
    slot = evaluates(61)
    snapshot = b.snapshot(b.view(slot))
    pauses = status(snapshot)["runs"][0]["ranks"][0]["pauses"]
    assert (pauses["evaluations"], pauses["evaluation_seconds"]) == (2, 69.0)
    assert pauses["evaluating_since"] == b.EPOCH - 61
    text = render(snapshot, None)[0].decode()
    assert 'warmwatch_evaluation_seconds_total{rank="0",run="gpt2"} 69.0' in text
    assert 'warmwatch_evaluations_total{rank="0",run="gpt2"} 2' in text
    untold = b.snapshot(b.view(b.WARM))
    assert status(untold)["runs"][0]["ranks"][0]["pauses"]["evaluation_seconds"] is None
    assert "warmwatch_evaluation_seconds_total{" not in render(untold, None)[0].decode()


@pytest.mark.parametrize(("since", "gone", "seconds"), [(9, 0, 9.0), (70, 0, 61.0), (9, 2, 7.0)])
def test_an_evaluation_knows_the_time_of_a_compilation_in_progress(
    since: float, gone: float, seconds: float
) -> None:
    """Of a process that was killed in it, too: no compilation has a record of that time."""
    slot = evaluates(61)
    slot = replace(slot, compile=replace(slot.compile, active_since_ns=b.ago(since)))
    view = b.view(slot, alive=not gone, gone=gone) if gone else b.view(slot)
    assert view.figures.pauses.evaluation_compiling_seconds == seconds
    over = replace(slot, compile=replace(slot.compile, active_since_ns=0))
    assert b.view(over).figures.pauses.evaluation_compiling_seconds is None
