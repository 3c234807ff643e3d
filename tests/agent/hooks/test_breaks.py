"""Graph breaks that PyTorch does not count, and their remedies, applied to each program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from support.torch_versions import TORCH
from warmwatch.hooks import registry
from warmwatch.hooks.dynamo.breaks import MOST_BREAKS, Breaks
from warmwatch.hooks.dynamo.events import read_counters
from warmwatch.hooks.installation import Hooks
from warmwatch.hooks.points import Listener
from warmwatch.hooks.redaction import graph_break
from warmwatch_monitor.model import GraphBreak
from warmwatch_monitor.status.words.breaks import break_remedy

torch = pytest.importorskip("torch")
POINTS = [one for one in registry.POINTS if one[0] in ("events", "compilations")]


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    torch._dynamo.reset()
    found = Hooks()
    found.install(POINTS, Listener())
    yield found
    found.uninstall_all()
    torch._dynamo.reset()


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="eager")


def x() -> Any:
    return torch.ones(3, 3)


def number_in_a_loop(*, cured: bool) -> None:
    def total(x: Any) -> Any:
        of = 0.0
        for row in range(3):
            of += x[row].sum().item()
        return x * of

    setting = torch._dynamo.config.patch(capture_scalar_outputs=True)
    with setting if cured else contextlib.nullcontext():
        compiled(total)(x())


def branch_in_a_loop(*, cured: bool) -> None:
    def scaled(x: Any) -> Any:
        for _ in range(3):
            if cured:
                x = torch.where(x.sum() > 1, x * 0.5, x)
            elif x.sum() > 1:
                x = x * 0.5
        return x

    compiled(scaled)(x())


def branch(*, cured: bool) -> None:
    def clipped(x: Any) -> Any:
        if cured:
            return torch.where(x.sum() > 1, x, x + 1)
        if x.sum() > 1:
            return x
        return x + 1

    compiled(clipped)(x())


def print_in_a_try(*, cured: bool) -> None:
    def logged(x: Any) -> Any:
        try:
            x = x + 1
            print("value")
            return x * 2
        except ValueError:
            return x

    ignored = torch._dynamo.config.patch(reorderable_logging_functions={print})
    with ignored if cured else contextlib.nullcontext():
        compiled(logged)(x())


CASES: list[tuple[Callable[..., None], str, str, bool]] = [
    (number_in_a_loop, "total", "torch._dynamo.config.capture_scalar_outputs", True),
    (branch_in_a_loop, "scaled", "torch.where", True),
    (branch, "clipped", "torch.where", False),
    (print_in_a_try, "logged", "torch._dynamo.config.reorderable_logging_functions", True),
]


@pytest.mark.parametrize(
    ("program", "name", "remedy", "whole"), CASES, ids=[one[0].__name__ for one in CASES]
)
def test_a_break_that_pytorch_does_not_count_is_named_and_its_remedy_cures(
    hooks: Hooks, program: Callable[..., None], name: str, remedy: str, whole: bool
) -> None:
    if program is branch_in_a_loop and not TORCH.reason:
        pytest.skip("torch 2.6 records nothing of it")
    program(cured=True)
    assert hooks.graph_breaks() == {}
    torch._dynamo.reset()
    program(cured=False)
    assert not torch._dynamo.utils.counters["graph_break"]
    ((text, count),) = hooks.graph_breaks().items()
    assert hooks.counters()["graph_breaks"] == count == 1
    where = hooks.break_place(text)
    assert (where["name"], where["file"]) == (name, "test_breaks.py")
    assert where.get("whole", False) is whole
    known = GraphBreak(reason=graph_break(text), count=count, hint=where.get("hint"))
    assert remedy in (break_remedy(known) or "")


def test_other_breaks_are_counted_as_pytorch_counts_them(hooks: Hooks) -> None:
    @compiled
    def broken(x: Any) -> Any:
        with torch.no_grad():
            x = x + 1
            torch._dynamo.graph_break()
            return x * 2

    @compiled
    def without_operations(x: int) -> int:
        return x + 1

    @torch.compile(backend="eager", fullgraph=True)
    def whole(x: Any) -> Any:
        for _ in range(2):
            torch._dynamo.graph_break()
        return x

    @compiled
    def at_limit(x: Any, of: int) -> Any:
        return x * of if of != 3 else x

    broken(x())
    without_operations(1)
    with torch._dynamo.config.patch({TORCH.limit: 1}):
        for number in range(4):
            at_limit(x(), number)
    with pytest.raises(Exception, match="graph_break"):
        whole(x())
    assert hooks.graph_breaks() == dict(torch._dynamo.utils.counters["graph_break"])
    assert hooks.counters()["graph_breaks"] == 1


def test_what_an_activity_reads_of_graph_breaks_is_bounded() -> None:
    many = {f"reason {number}": 2 for number in range(10_000)}
    read = Breaks({"graph_break": many}, ()).by_reason()
    assert read == dict(islice(many.items(), MOST_BREAKS))
    assert read_counters({"graph_break": many}, 7)["graph_breaks"] == 20_007
