"""When step 1 began: not with what compiled in an evaluation, or before there was an optimizer."""

from __future__ import annotations

import pytest

from support.ranks import Rank


def compile(rank: Rank, seconds: float, kind: str = "forward") -> None:
    rank.ledger.begin("dynamo")
    rank.wait(seconds)
    rank.ledger.post("compilation", {"kind": kind, "id": "0/0"})
    rank.ledger.end("dynamo")


def evaluate(rank: Rank, compiling: float) -> None:
    rank.ledger.post("pause_began", {"what": "evaluating"})
    if compiling:
        compile(rank, compiling)
    rank.wait(3)
    rank.ledger.post("pause_ended", {"what": "evaluating"})


def first(rank: Rank) -> tuple[float, float]:
    """The length of step 1, and the compile time before it."""
    rank.wait(1)
    rank.step()
    counts = rank.slot().compile
    return counts.first_duration_ns / 1e9, counts.before_first_step_ns / 1e9


@pytest.mark.parametrize("evaluations", [1, 2])
def test_an_evaluation_before_it_is_no_part_of_step_1(evaluations: int) -> None:
    rank = Rank()
    for _ in range(evaluations):
        evaluate(rank, 20)
        rank.wait(5)
    compile(rank, 10)
    assert first(rank) == (11, 20 * evaluations)


def test_it_begins_with_the_end_of_the_evaluation_if_nothing_compiles_after_it() -> None:
    rank = Rank()
    evaluate(rank, 20)
    rank.wait(5)
    assert first(rank) == (6, 20)


def test_it_does_not_begin_before_there_is_an_optimizer() -> None:
    rank = Rank()
    compile(rank, 20)
    rank.ledger.post("optimizer", {})
    rank.wait(5)
    compile(rank, 10)
    rank.ledger.post("optimizer", {})  # of a second model
    assert first(rank) == (11, 20)


def test_an_optimizer_may_be_made_within_it() -> None:
    rank = Rank()
    compile(rank, 20)
    compile(rank, 10, "backward")
    rank.ledger.post("optimizer", {})
    compile(rank, 2)
    assert first(rank) == (33, 0)


def test_pauses_before_and_within_the_first_warm_up_are_apart_from_its_compile_time() -> None:
    rank = Rank()
    rank.ledger.post("pause_began", {"what": "evaluating"})
    rank.wait(1)
    compile(rank, 20)
    rank.wait(3)
    rank.ledger.post("pause_ended", {"what": "evaluating"})
    rank.wait(5)
    rank.ledger.post("pause_began", {"what": "saving"})
    rank.wait(2)
    rank.ledger.post("pause_ended", {"what": "saving"})
    compile(rank, 10)
    rank.step()
    for _ in range(4):
        rank.wait(1)
        rank.step()
    evaluate(rank, 20)  # later
    counts = rank.slot().compile
    assert counts.warmups == 1
    assert (counts.paused_before_ns / 1e9, counts.paused_warmup_ns / 1e9) == (1, 5)
