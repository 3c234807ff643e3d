"""Pauses are no part of a step and delay no stall, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from support.ranks import SECOND, Rank
from warmwatch.ledger.pauses import PauseCounters
from warmwatch.shared import record, verdict
from warmwatch.shared.record import COMPILE_INDEX, COMPILE_WORDS, STEPS_INDEX
from warmwatch.shared.record.recent import gap_ns


@pytest.mark.parametrize("compiles", [0, 30])
def test_a_long_evaluation_does_not_change_the_stall_limit(compiles: int) -> None:
    """This includes an evaluation that compiles: a hang is detected after twice its time."""
    rank = Rank()
    for _ in range(8):
        rank.wait(1)
        rank.step()
    rank.ledger.post("pause_began", {"what": "evaluating"})
    if compiles:
        rank.ledger.begin("dynamo")
        rank.wait(compiles)
        rank.ledger.end("dynamo")
    rank.wait(1800 - compiles)
    rank.ledger.post("pause_ended", {"what": "evaluating"})
    for _ in range(8):
        rank.wait(1)
        rank.step()
    assert rank.judge().state.value == ("warm" if compiles else "eager")
    rank.wait(verdict.STALL_FLOOR_NS / 1e9 + 1)
    assert rank.judge().state.value == "stalled"


class Elsewhere(Thread):
    """Runs ``act`` on another thread."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__(target=act)
        self.start()
        self.join()


def test_a_step_that_compiled_has_its_length_without_its_pauses() -> None:
    """Else all of an evaluation that compiles at its begin would be compile cost."""
    rank = Rank()
    for _ in range(8):
        rank.wait(1)
        rank.step()
    rank.ledger.post("pause_began", {"what": "evaluating"})
    rank.ledger.begin("dynamo")
    rank.wait(30)
    rank.ledger.end("dynamo")
    rank.wait(570)
    rank.ledger.post("pause_ended", {"what": "evaluating"})
    rank.wait(1)
    rank.step()
    slot = rank.slot()
    assert slot.compile.compile_step_sum_ns == slot.steps.last_duration_ns == 30 * SECOND
    assert record.quantile_ns(slot.compile_bins, 0.5) == pytest.approx(30 * SECOND, rel=0.03)
    assert [values["seconds"] for event, _, values in rank.store.notes if event == "step"][-1] == 30
    assert gap_ns(slot.recent[0]) == 601 * SECOND


def test_a_save_on_another_thread_is_a_background_save_and_not_a_pause() -> None:
    rank = Rank()
    for _ in range(5):
        rank.wait(1)
        rank.step()

    def save() -> None:
        for _ in range(2):  # a save within a save
            rank.ledger.post("pause_began", {"what": "saving"})
        rank.wait(2)
        rank.ledger.post("pause_ended", {"what": "saving"})
        rank.wait(3)
        assert rank.slot().compile.background_saving_since_ns == rank.now - 5 * SECOND
        rank.ledger.post("pause_ended", {"what": "saving"})

    Elsewhere(save)
    counts = rank.slot().compile
    assert (counts.background_saving_ns, counts.background_saving_since_ns) == (5 * SECOND, 0)
    assert (counts.saving_ns, counts.saving_since_ns) == (0, 0)
    rank.ledger.post("pause_began", {"what": "saving"})
    rank.wait(7)
    rank.ledger.post("pause_ended", {"what": "saving"})
    counts = rank.slot().compile
    assert (counts.saving_ns, counts.background_saving_ns) == (7 * SECOND, 5 * SECOND)


@pytest.mark.parametrize("callbacks", [0, 1, 2])
def test_a_frameworks_report_ends_the_evaluation_that_its_eval_began(callbacks: int) -> None:
    """Lightning calls ``eval()`` and then its callbacks, and restores the mode without ``train``.

    A plain loop has no callbacks: ``train()`` ends its evaluation.
    """
    rank = Rank()
    rank.wait(1)
    rank.step()
    rank.ledger.post("pause_began", {"what": "evaluating", "by_eval": True})
    for _ in range(callbacks):
        rank.ledger.post("pause_began", {"what": "evaluating"})
    rank.wait(3)
    for _ in range(max(1, callbacks)):
        rank.ledger.post("pause_ended", {"what": "evaluating"})
    counts = rank.slot().compile
    assert (counts.evaluations, counts.evaluating_since_ns) == (1, 0)
    assert counts.evaluating_ns == 3 * SECOND


def test_batches_of_an_evaluation_count_if_nothing_compiles_in_it() -> None:
    rank = Rank()
    hot = record.hot_words(rank.store.buffer)
    for batches, compiles in ((10, True), (4, False), (0, False), (6, False)):
        rank.wait(1)
        rank.step()
        rank.ledger.post("pause_began", {"what": "evaluating"})
        if compiles:
            rank.ledger.begin("dynamo")
            rank.ledger.end("dynamo")
        rank.wait(1 + batches)
        hot[STEPS_INDEX["batches"]] += batches
        rank.ledger.post("pause_ended", {"what": "evaluating"})
        hot[STEPS_INDEX["batches"]] += 100  # of the training
    counts = rank.slot().compile
    assert counts.evaluations == 4
    assert (counts.evaluation_batches, counts.evaluation_batches_ns) == (10, (5 + 7) * SECOND)


@pytest.mark.parametrize("ends_in_save", [False, True])
def test_a_save_within_an_evaluation_counts_as_saving_only(ends_in_save: bool) -> None:
    """``eval()``, validation, ``torch.save``, ``train()``: the parts of a report do not overlap."""
    rank = Rank()
    hot = record.hot_words(rank.store.buffer)
    rank.wait(1)
    rank.step()
    rank.ledger.post("pause_began", {"what": "evaluating", "by_eval": True})
    rank.wait(3)
    hot[STEPS_INDEX["batches"]] += 3
    rank.ledger.post("pause_began", {"what": "saving"})
    counts = rank.slot().compile
    assert (counts.evaluating_ns, counts.evaluating_since_ns) == (3 * SECOND, 0)
    rank.ledger.post("pause_began", {"what": "evaluating", "by_eval": True})
    rank.wait(20)
    if ends_in_save:
        rank.ledger.post("pause_ended", {"what": "evaluating", "by_train": True})
    rank.ledger.post("pause_ended", {"what": "saving"})
    if not ends_in_save:
        assert rank.slot().compile.evaluating_since_ns == rank.now
        rank.wait(2)
        rank.ledger.post("pause_ended", {"what": "evaluating", "by_train": True})
    rank.wait(1)
    rank.step()
    counts, evaluated = rank.slot().compile, 3 if ends_in_save else 5
    assert (counts.saving_ns, counts.evaluating_ns) == (20 * SECOND, evaluated * SECOND)
    assert (counts.evaluations, counts.evaluating_since_ns) == (1, 0)
    assert (counts.evaluation_batches, counts.evaluation_batches_ns) == (3, evaluated * SECOND)
    assert rank.slot().steps.last_duration_ns == SECOND


def test_a_save_after_a_lost_end_starts_from_zero() -> None:
    words = [0] * COMPILE_WORDS
    pauses = PauseCounters(words)
    assert pauses.began("saving", 1, 100, 1, 5)
    assert not pauses.began("saving", 1, 110, 1, 5)  # within it
    assert pauses.began("saving", 1, 900, 1, 6)
    assert pauses.ended("saving", 1, 950, 6)
    assert words[COMPILE_INDEX["saving_ns"]] == 50
    assert words[COMPILE_INDEX["saving_since_ns"]] == 0


def test_steps_after_an_evaluation_with_a_late_end_are_not_part_of_it() -> None:
    words = [0] * COMPILE_WORDS
    pauses = PauseCounters(words)
    pauses.began("evaluating", 1, 100, 1, 5)
    assert pauses.ended("evaluating", 1, 900, 8)
    assert not pauses.ended("evaluating", 1, 950, 8)
    assert pauses.began("evaluating", 1, 960, 1, 8)
    assert pauses.ended("evaluating", 1, 970, 8)
    counts = {name: words[COMPILE_INDEX[name]] for name in ("evaluating_ns", "evaluations")}
    assert counts == {"evaluating_ns": 10, "evaluations": 1}
    assert words[COMPILE_INDEX["evaluating_since_ns"]] == 0
    assert pauses.length_since(0) == 10


def test_a_pause_of_another_thread_before_the_first_step_hides_no_later_pause() -> None:
    words = [0] * COMPILE_WORDS
    pauses = PauseCounters(words)
    assert pauses.began("evaluating", 2, 100, None, 0)  # the training thread is not known yet
    assert pauses.began("evaluating", 1, 500, 1, 3)
    assert not pauses.ended("evaluating", 2, 550, 3)
    assert pauses.ended("evaluating", 1, 600, 3)
    assert words[COMPILE_INDEX["evaluating_ns"]] == 100


def test_a_process_that_is_stopped_as_it_marks_a_step_loses_no_step() -> None:
    """The activity that its step leaves open is accounted until later than the mark."""
    rank = Rank()
    rank.ledger.begin("dynamo")
    rank.step()
    rank.wait(1)
    rank.ledger.begin("dynamo")
    rank.wait(1)

    def stopped() -> int:
        at = rank.now
        rank.wait(5)
        return at

    rank.tick = stopped
    rank.step()
    steps = rank.slot().steps
    assert (steps.steps, steps.last_duration_ns) == (2, 2 * SECOND)
