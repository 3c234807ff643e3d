"""Saving, evaluation and data wait: each is reported as such, and never as a stall."""

from __future__ import annotations

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.metrics import render
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


def test_a_save_that_does_not_end_becomes_a_stall_with_that_cause() -> None:
    steps = replace(b.WARM.steps, last_step_ns=b.ago(700))
    view = b.view(replace(saves(699), steps=steps))
    assert view.judgement.state.value == "stalled"
    assert "saving a checkpoint for 12 min" in summary(b.snapshot(view))


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
