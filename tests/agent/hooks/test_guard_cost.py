"""The time of guard checks, which ``warmwatch modes`` requests after the measured steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from warmwatch.hooks.dynamo.guard_cost import GuardCost, of_a_step
from warmwatch.shared.record.loss_file import GUARDS, REQUEST, unpack_guards

# PyTorch is imported in the tests: at the top, every worker would import it


@pytest.mark.parametrize(
    ("lookups", "steps", "expected"),
    [
        ([10, 1, 12, 1, 900, 1], 3, 13),
        ([10, 10, 12, 10, 11], 4, 53 / 4),
        ([7], 2, 3.5),
        ([], 3, 0),
    ],
    ids=["two a step", "unequal numbers", "not in each step", "none"],
)
def test_the_guard_checks_of_a_step_are_measured(
    lookups: list[int], steps: int, expected: float
) -> None:
    assert of_a_step(lookups, steps) == expected


@pytest.fixture
def passes(tmp_path: Path) -> Iterator[Iterator[None]]:
    """Each next() is a step: two calls of compiled code and one backward pass."""
    import torch

    compiled = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    cost = GuardCost(torch, tmp_path, "0-1")

    def steps() -> Iterator[None]:
        for step in range(10**6):
            compiled(compiled(torch.ones(2, 4))).sum().backward()
            cost.passed(step)
            yield

    yield steps()
    cost.stop()
    torch.compiler.reset()


def test_guard_checks_are_measured_once_and_only_if_requested(
    tmp_path: Path, passes: Iterator[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr("warmwatch.hooks.dynamo.guard_cost._LEAST_NS", 0)
    for _ in range(3):
        next(passes)
    assert not torch.autograd._profiler_enabled()
    (tmp_path / REQUEST).touch()
    next(passes)
    assert torch.autograd._profiler_enabled()
    for _ in range(3):
        next(passes)
    assert not torch.autograd._profiler_enabled()
    (result,) = tmp_path.glob(f"*{GUARDS}")
    seconds, frames = unpack_guards(result.read_text())
    assert 0 < seconds < 1
    assert list(frames.values()) == [pytest.approx(seconds)], "of the one compiled function"
    result.unlink()
    for _ in range(8):
        next(passes)
    assert not list(tmp_path.glob(f"*{GUARDS}"))


@pytest.mark.parametrize("first", [True, False], ids=["begins first", "begins meanwhile"])
def test_a_profiler_of_the_program_is_not_replaced(
    tmp_path: Path, passes: Iterator[None], monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    import torch

    monkeypatch.setattr("warmwatch.hooks.dynamo.guard_cost._LEAST_NS", 0)
    request = tmp_path / REQUEST
    next(passes)
    if not first:
        request.touch()
        next(passes)
        assert torch.autograd._profiler_enabled()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        request.touch()
        for _ in range(5):
            next(passes)
        assert torch.autograd._profiler_enabled()
    next(passes)
    assert not torch.autograd._profiler_enabled()
    assert sum(one.name == "TorchDynamo Cache Lookup" for one in theirs.events()) == 10
    assert not list(tmp_path.glob(f"*{GUARDS}"))
