"""For how many steps in a row each function compiled again."""

from __future__ import annotations

from warmwatch.ledger.compilations import Repeating

LOSS = {"name": "loss", "file": "train.py", "line": 5}


def test_a_reset_and_another_module_count_and_a_refused_call_does_not() -> None:
    made = Repeating()
    for at, how in enumerate(("category", "again", "instance"), 1):
        assert made.add("forward", {**LOSS, how: "x"}, at) == at
    assert made.add("forward", {**LOSS, "category": "shape", "at_limit": True}, 4) == 0
    assert made.of(LOSS, 4) == (3, 4)


def test_the_memory_is_bounded() -> None:
    made = Repeating()
    made.add("forward", {**LOSS, "failure": "x"}, 1)
    for number in range(300):
        made.add("forward", {"name": str(number)}, 1)
    assert made.of(LOSS, 1) == (0, 1)
