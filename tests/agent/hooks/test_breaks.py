"""Graph breaks, also those that PyTorch does not count, and their remedies, applied."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from support.torch_versions import TORCH
from warmwatch import _guard
from warmwatch.hooks import registry
from warmwatch.hooks.dynamo.breaks import MOST_BREAKS, Breaks
from warmwatch.hooks.installation import Hooks
from warmwatch.hooks.points import Fact, Listener
from warmwatch.hooks.redaction import graph_break
from warmwatch.shared.breaks import IGNORED, break_remedy

torch = pytest.importorskip("torch")
POINTS = [one for one in registry.POINTS if one[0] in ("events", "compilations")]


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # of this process: another test may have left some
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


class Tagger(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.lstm = torch.nn.LSTM(4, 4)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.up(x))
        x, _ = self.lstm(x)
        return torch.relu(self.down(x))


def recurrent(*, cured: bool) -> None:
    with torch._dynamo.config.patch(allow_rnn=cured):
        compiled(Tagger())(x())


CASES: list[tuple[Callable[..., None], str, str, str | None]] = [
    (number_in_a_loop, "total", "torch._dynamo.config.capture_scalar_outputs", "all"),
    (branch_in_a_loop, "scaled", "torch.where", "all"),
    (branch, "clipped", "torch.where", None),
    (print_in_a_try, "logged", "torch._dynamo.config.reorderable_logging_functions", "all"),
    (recurrent, "forward", "torch._dynamo.config.allow_rnn", "rest"),
]


@pytest.mark.parametrize(
    ("program", "name", "remedy", "eager"), CASES, ids=[one[0].__name__ for one in CASES]
)
def test_a_break_that_pytorch_does_not_count_is_named_and_its_remedy_cures(
    hooks: Hooks, program: Callable[..., None], name: str, remedy: str, eager: str | None
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
    assert where.get("eager") == eager
    known = break_remedy(graph_break(text), where.get("hint"), library=False)
    assert remedy in (known or "")


def test_a_setting_does_not_help_in_the_backward_of_an_autograd_function(hooks: Hooks) -> None:
    norms, last = list[float](), torch.zeros(())

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:  # noqa: ARG004
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:  # noqa: ARG004
            if cured:
                last.copy_(gradient.norm())
            else:
                norms.append(gradient.norm().item())
            return gradient * 2

    def remedy() -> str | None:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.compile(lambda x: Watched.apply(x).sum(), backend="eager")(x().requires_grad_())
        for text in hooks.graph_breaks():
            where = hooks.break_place(text)
            return break_remedy(graph_break(text), where.get("hint"), where["name"], library=False)
        return None

    cured = False
    first = str(remedy())
    assert "copy_()" in first
    assert "capture_scalar_outputs" not in first
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert not TORCH.reason or "copy_()" in str(remedy())  # for the list that changes
    cured = True
    assert remedy() is None


@pytest.mark.parametrize("has", [False, True])
def test_a_setting_that_this_pytorch_lacks_is_no_remedy(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, has: bool
) -> None:
    def warned(x: Any) -> Any:
        warnings.warn("old", DeprecationWarning, stacklevel=2)
        return x * 2

    compiled(warned)(x())
    ((text, _),) = hooks.graph_breaks().items()
    if not has:  # as before 2.11
        monkeypatch.delitem(torch._dynamo.config._config, IGNORED, raising=False)
    remedy = break_remedy(graph_break(text), hooks.break_place(text).get("hint"), library=False)
    assert remedy is not None
    assert (IGNORED in remedy) == hasattr(torch._dynamo.config, IGNORED)
    assert remedy.startswith("Take the warning out of the compiled function")


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


COMPILED = SimpleNamespace(co_name="f", has_guarded_code=True)


def entry(line: int = 3, reason: str = "graph_break()") -> SimpleNamespace:
    """One of PyTorch's list."""
    frame = SimpleNamespace(name="f", filename="train.py", lineno=line)
    return SimpleNamespace(reason=reason, user_stack=[frame])


def test_each_line_of_a_reason_is_known_up_to_a_limit() -> None:
    listed: list[SimpleNamespace] = []
    breaks = Breaks({}, listed)
    for lines in ((10,), (12, 12), (14, 14), range(20, 20_000)):
        listed += map(entry, lines)
        breaks.compiled(COMPILED)
        where = breaks.place("graph_break()")
        known = [other["line"] for other in where.get("also", ())] + [where["line"]]
        assert known == ([10, 12, 14][: len(known)] if lines[-1] < 20 else [*range(19_992, 20_000)])


def test_a_break_that_leaves_the_caller_in_its_loop_has_its_line_and_the_caller(
    hooks: Hooks,
) -> None:
    if not TORCH.reason:
        pytest.skip("torch 2.6 records no place of it")

    def number(x: Any) -> Any:
        return x * x.sum().item()

    def looped(x: Any) -> Any:
        for _ in range(2):
            x = number(x)
        return x

    compiled(looped)(x())
    wheres = [hooks.break_place(text) for text in hooks.graph_breaks()]
    torch._dynamo.utils.counters.clear()
    places = [
        (one["name"], one["line"], one.get("eager"))
        for where in wheres
        for one in (where, *where.get("also", ()))
    ]
    first, last = number.__code__.co_firstlineno, looped.__code__.co_firstlineno
    assert ("looped", last, "all") in places
    assert ("number", first + 1) in [one[:2] for one in places]


def test_a_compilation_is_reported_if_its_breaks_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Compilations(Listener):
        def __init__(self) -> None:
            self.names: list[str] = []

        def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
            if fact == "compilation":
                self.names.append(values["name"])

    def fails(*_: Any) -> None:
        raise TypeError("an entry that this version does not know")

    errors: list[str] = []
    disconnect = _guard.also_connect(lambda where, _: errors.append(where))
    monkeypatch.setattr(Breaks, "compiled", fails)
    seen, hooks = Compilations(), Hooks()
    torch._dynamo.reset()
    hooks.install(POINTS, seen)
    branch(cured=True)
    hooks.uninstall_all()
    disconnect()
    assert (seen.names, errors) == (["clipped"], ["hooks.compilations"])


def test_what_an_activity_reads_of_graph_breaks_is_bounded() -> None:
    many = {f"reason {number}": 2 for number in range(10_000)}
    breaks = Breaks({"graph_break": many}, ())
    assert breaks.by_reason() == dict(islice(many.items(), MOST_BREAKS))
    assert breaks.counters()["graph_breaks"] == 20_000
