"""For how many steps in a row each function compiled again."""

from __future__ import annotations

from warmwatch.ledger.compilations import Repeating

LOSS = {"name": "loss", "file": "train.py", "line": 5}
STEP = {"code": "ab12", "name": "step"}


def test_a_row_counts_steps_and_not_compilations() -> None:
    made = Repeating()
    assert made.add("forward", LOSS, 1) == 0  # the first compilation
    assert [made.add("forward", {**LOSS, "category": "shape"}, at) for at in (2, 2, 3, 4)] == [
        *(1, 1, 2, 3),
    ]
    assert made.of(LOSS, 4) == (3, 4)
    assert made.of(LOSS, 5) == (3, 5)  # what is refused then is none of the steps before
    assert made.add("forward", {**LOSS, "category": "shape"}, 6) == 1  # step 5 was clean


def test_cuda_graphs_of_a_new_size_count_and_their_recording_does_not() -> None:
    made = Repeating()
    assert [made.add("cudagraph", {"code": "ab12", "new_sizes": 1}, at) for at in (1, 1, 2, 3)] == [
        *(1, 1, 2, 3),
    ]
    assert made.add("cudagraph", {"code": "ab12", "recorded": 1}, 4) == 0


def test_a_reset_and_another_module_count_and_a_refused_call_does_not() -> None:
    made = Repeating()
    for at, how in enumerate(("category", "again", "instance"), 1):
        assert made.add("forward", {**LOSS, how: "x"}, at) == at
    assert made.add("forward", {**LOSS, "category": "shape", "at_limit": True}, 4) == 0
    assert made.of(LOSS, 4) == (3, 4)


def test_failures_have_a_row_of_their_own() -> None:
    """A recompile in each of three steps, and one failure: not four failures in a row."""
    made = Repeating()
    again = {**LOSS, "category": "shape"}
    failed = {**again, "failure": "x"}
    rows = [made.add("forward", values, at) for at, values in enumerate((again,) * 3, 2)]
    assert [*rows, *(made.add("forward", failed, at) for at in (5, 5, 6))] == [1, 2, 3, 1, 1, 2]
    assert made.longest(5) == 3
    assert made.of(LOSS, 6) == (3, 4)


def test_the_longest_row_is_that_of_a_function_that_goes_on() -> None:
    made = Repeating()
    for at in (1, 2, 3):
        made.add("forward", {**LOSS, "failure": "x"}, at)
    assert made.longest(3) == 3
    made.add("forward", {**STEP, "category": "shape"}, 4)
    assert made.longest(4) == 3  # `loss` may compile in this step as well
    made.add("forward", {**STEP, "category": "shape"}, 5)
    assert made.longest(5) == 2


def test_a_backward_counts_for_the_row_and_not_for_the_steps_of_a_function() -> None:
    made = Repeating()
    made.add("forward", STEP, 1)
    assert [made.add("backward", {**STEP, "again": True}, at) for at in (2, 3)] == [1, 2]
    assert made.of(STEP, 3) == (2, 2)


def test_the_memory_is_bounded() -> None:
    made = Repeating()
    made.add("forward", {**LOSS, "failure": "x"}, 1)
    for number in range(300):
        made.add("forward", {"name": str(number)}, 1)
    assert made.of(LOSS, 1) == (0, 1)
