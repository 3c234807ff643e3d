"""Pauses are no part of a step and delay no stall, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from support.ranks import SECOND, Rank
from warmwatch.shared import record, verdict
from warmwatch.shared.record import COMPILE_INDEX, STEPS_INDEX
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


class Threads:
    """Pauses of several threads, at given times and step counts."""

    def __init__(self, training: int | None = 1) -> None:
        rank = Rank()
        self.pausing, self.block = rank.ledger.pausing, rank.ledger.block
        self.pausing.training = training

    def began(self, what: str, thread: int, now: int, steps: int) -> None:
        values = {"what": what, "thread": thread, "steps": steps}
        self.pausing.began("pause_began", now, values)

    def ended(self, what: str, thread: int, now: int, steps: int) -> None:
        values = {"what": what, "thread": thread, "steps": steps}
        self.pausing.ended("pause_ended", now, values)

    def counts(self, *names: str) -> list[int]:
        return [self.block[COMPILE_INDEX[name]] for name in names]


def test_a_save_after_a_lost_end_starts_from_zero() -> None:
    threads = Threads()
    threads.began("saving", 1, 100, 5)
    threads.began("saving", 1, 110, 5)  # within it
    assert threads.counts("saving_since_ns") == [100]
    threads.began("saving", 1, 900, 6)
    assert threads.counts("saving_since_ns") == [900]
    threads.ended("saving", 1, 950, 6)
    assert threads.counts("saving_ns", "saving_since_ns") == [50, 0]


def test_steps_after_an_evaluation_with_a_late_end_are_not_part_of_it() -> None:
    threads, fields = Threads(), ("evaluating_ns", "evaluations", "evaluating_since_ns")
    threads.began("evaluating", 1, 100, 5)
    threads.ended("evaluating", 1, 900, 8)
    threads.ended("evaluating", 1, 950, 8)
    assert threads.counts(*fields) == [0, 0, 0]
    threads.began("evaluating", 1, 960, 8)
    threads.ended("evaluating", 1, 970, 8)
    assert threads.counts(*fields) == [10, 1, 0]
    assert threads.pausing.length_since(0) == 10
