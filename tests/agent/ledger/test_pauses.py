"""What is no part of a step and of no rank's patience, on a clock that the test moves."""

from __future__ import annotations

import pytest

from support.ranks import Rank
from warmwatch.shared import verdict


@pytest.mark.parametrize("compiles", [0, 30])
def test_a_long_evaluation_is_no_measure_of_a_stall(compiles: int) -> None:
    """Also where it compiles, as the first one does: a hang would be seen after twice its time."""
    rank = Rank()
    for _ in range(8):
        rank.wait(1)
        rank.step()
    rank.ledger.pause_began("evaluating")
    if compiles:
        rank.ledger.begin("dynamo")
        rank.wait(compiles)
        rank.ledger.end("dynamo")
    rank.wait(1800 - compiles)
    rank.ledger.pause_ended("evaluating")
    for _ in range(8):
        rank.wait(1)
        rank.step()
    assert rank.judge().state.value == ("warm" if compiles else "eager")
    rank.wait(verdict.STALL_FLOOR_NS / 1e9 + 1)
    assert rank.judge().state.value == "stalled"
