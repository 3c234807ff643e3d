"""Which optimizer calls are steps, for any sequence of phases. Real optimizers: test_steps.py."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmwatch.steps.attribution import StepAttribution

NAMES = "ABCD"


class Parameter:
    pass


class Optimizer(SimpleNamespace):
    __hash__ = object.__hash__


def optimizers() -> dict[str, Any]:
    return {name: Optimizer(param_groups=[{"params": [Parameter()]}]) for name in NAMES}


def steps_of(calls: str) -> int:
    """The steps of a loop that calls its optimizers in this order.

    Those in capital letters were created before it. "+" creates a new optimizer "n"; "*" gives all
    optimizers new parameters, as Gaussian splatting does.
    """
    count = leader = 0

    def lead(optimizer_id: int) -> None:
        nonlocal leader
        leader = optimizer_id

    # a forward pass before every call
    attribution = StepAttribution(lead, lambda: count, forwards=itertools.count().__next__)
    made = optimizers()
    for optimizer in made.values():
        attribution.created(optimizer)
    for name in calls:
        if name == "+":
            made["n"] = Optimizer(param_groups=[{"params": [Parameter()]}])
            attribution.created(made["n"])
            continue
        if name == "*":
            kept = [Parameter() for _ in made]  # before the old ones are freed: other ids
            for optimizer in made.values():
                optimizer.param_groups[0]["params"] = [kept.pop()]
            continue
        optimizer = made[name]
        count += id(optimizer) == leader or attribution.is_step(optimizer)
    return count


@pytest.mark.parametrize(
    ("calls", "steps"),
    [
        ("A" * 30, 30),
        ("AB" * 30, 30),
        ("AAAAAB" * 10, 50),
        ("ABC" * 10 + "AC" * 10 + "C" * 10, 30),  # optimizers end one after another
        ("AB" * 5 + "B" + "AB" * 5, 11),  # a scaler skips A
        ("AAAAABBBBB" * 7, 69),
        ("AAAAABBBBBCCCCC" * 7, 103),
        (("AAAAA" + "BC" * 5) * 6, 59),
        (("AB" * 5 + "B" * 5) * 6, 60),
        ("B" * 8 + "AAAAAB" * 10, 57),  # its generator is trained first
        (("A" * 5 + "B" * 5) * 3 + "AAAAAB" * 10, 79),  # turns, then a GAN
        (("A" * 5 + "B" * 5) * 3 + "AB" * 10, 39),
        (("A" * 5 + "+" + "n" * 5) * 7, 70),  # a probe after each epoch
        (("ABC" * 5 + "*") * 7, 35),
        (("AAAAAB" + "*") * 7, 35),
        ("A" * 9 + ("+nnnnn" + "A") * 20, 110),  # MAML after a pretraining
    ],
)
def test_steps(calls: str, steps: int) -> None:
    assert steps_of(calls) == steps


one_phase = st.tuples(
    st.sets(st.sampled_from(NAMES), min_size=1, max_size=3), st.integers(min_value=2, max_value=7)
)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(phases=st.lists(one_phase, min_size=1, max_size=4), times=st.integers(1, 12))
def test_no_iteration_is_two_steps(phases: Sequence[tuple[set[str], int]], times: int) -> None:
    """An iteration calls its optimizers in one order, each once; a loop repeats its phases."""
    calls = "".join("".join(sorted(names)) * length for names, length in phases)
    assert steps_of(calls * times) <= times * sum(length for _, length in phases)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(
    lengths=st.lists(st.integers(min_value=3, max_value=9), min_size=1, max_size=len(NAMES)),
    times=st.integers(1, 12),
)
def test_turns_lose_one_step_of_each_optimizer_at_most(lengths: list[int], times: int) -> None:
    calls = "".join(name * length for name, length in zip(NAMES, lengths, strict=False))
    lost = times * sum(lengths) - steps_of(calls * times)
    assert 0 <= lost <= len(lengths) - 1
