"""Each kind of graph break that ordinary code reaches: its place, cause, and remedy, applied.

The tables are in ``breaks/``; of the breaks that PyTorch lists
(``torch/_dynamo/graph_break_registry.json``), those that a training can reach are in them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from support.graph_breaks import AROUND, NAME, OUTSIDE, Break, every, names_of, settings_of
from support.torch_versions import INSTALLED
from warmwatch.hooks import registry
from warmwatch.hooks.installation import Hooks
from warmwatch.hooks.points import Fact, Listener
from warmwatch.hooks.redaction import failure, graph_break
from warmwatch.shared.breaks import break_remedy, break_remedy_for, plain_break
from warmwatch.shared.phrases import resumed

torch = pytest.importorskip("torch")
POINTS = [one for one in registry.POINTS if one[0] in ("events", "compilations")]
EVERY = every()


@dataclass(frozen=True, slots=True)
class Reported:
    """One graph break, as it is reported."""

    cause: str
    remedy: str
    library: bool
    places: tuple[tuple[str, str, int], ...]


class Failures(Listener):
    """The last compilation that failed, as the journal has it."""

    def __init__(self) -> None:
        self.values: Mapping[str, Any] = {}

    def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
        if fact == "compilation" and "failure_reason" in values:
            self.values = values


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without what takes most of a small compilation: PyTorch flushes the CPU's cache to measure
    guards, collects garbage, and describes all to pytest's log."""
    with contextlib.suppress(AttributeError):
        monkeypatch.setattr(torch._dynamo.guards, "profile_guard_manager", lambda *_: 0.0)
    monkeypatch.setattr(logging.getLogger("torch._dynamo"), "disabled", True)
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "handlers", [])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    config = torch._dynamo.config
    gc = "run_gc_after_compile"
    with config.patch({gc: False}) if hasattr(config, gc) else contextlib.nullcontext():
        yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def x() -> Any:
    return torch.arange(9.0).view(3, 3) + 1


def value_of(case: Break, names: Mapping[str, Any]) -> Any:
    """What the caller of the cured twin computes."""
    if not case.outside:
        return None
    scope = {**names, "x": x(), "v": None}
    try:
        return eval(case.outside, scope)
    except SyntaxError:
        exec(case.outside, scope)
        return scope["v"]


def broken(case: Break, around: str = "{}", *, fullgraph: bool = False) -> list[Reported]:
    """What is reported of it."""
    return called(case, case.function(case.broken, names_of(case.subject), around), fullgraph)[0]


def called(
    case: Break, function: Any, fullgraph: bool = False, value: Any = None
) -> tuple[list[Reported], Any]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    hooks, failures = Hooks(), Failures()
    hooks.install(POINTS, failures)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.manual_seed(0)
            compiled = torch.compile(function, backend="eager", fullgraph=fullgraph)
            result = compiled(x(), value) if value is not None else compiled(x())
        return [_reported(hooks, text) for text in hooks.graph_breaks()], result
    except Exception:
        if not fullgraph:
            raise
        return [_failure(failures.values)] if failures.values else [], None
    finally:
        hooks.uninstall_all()


def _reported(hooks: Hooks, text: str) -> Reported:
    where = hooks.break_place(text)
    value = SimpleNamespace(
        reason=graph_break(text),
        **{key: where.get(key) for key in ("hint", "name", "file", "caller")},
        library=where.get("library", False),
        also=[SimpleNamespace(name=at.get("name")) for at in where.get("also", ())],
    )
    return Reported(
        cause=plain_break(value.reason, value.name, library=value.library) or value.reason,
        remedy=break_remedy_for(value) or "",
        library=value.library,
        places=tuple(_place(at) for at in (where, *where.get("also", ())) if "name" in at),
    )


def _place(where: Mapping[str, Any]) -> tuple[str, str, int]:
    rest = resumed(where["name"])
    return rest[0] if rest else where["name"], where["file"], where["line"]


def _failure(values: Mapping[str, Any]) -> Reported:
    reason, at = failure(values["failure_reason"]), values["failed_at"]
    by = at["name"], at.get("library", False), at.get("caller")
    return Reported(
        cause=plain_break(reason) or reason,
        remedy=break_remedy(reason, values.get("failure_hint"), by[0], library=by[1], caller=by[2])
        or "",
        library=by[1],
        places=(_place(at),),
    )


def _parameter(number: int, case: Break) -> Any:
    """Most are long, as of one subject their neighbours take the same way: most of all of those
    with the general remedy."""
    marks = [pytest.mark.long] if number % (4 if case.remedy == OUTSIDE else 2) else []
    return pytest.param(case, marks=marks, id=f"{case.subject}.{case.name}")


def check_of_older(case: Break) -> None:
    """Where PyTorch has other words for it, traces the line, or fails: none of its classes and
    addresses is a cause, and a remedy is named."""
    try:
        found = broken(case)
    except Exception as error:  # noqa: BLE001 - of any kind
        pytest.skip(f"this PyTorch fails: {error}")
    for one in found:
        assert one.remedy or one.library
        assert not re.search(r"[a-z]Variable\b|0x|^'", one.cause)


@pytest.mark.parametrize("case", [_parameter(*each) for each in enumerate(EVERY)])
def test_the_cause_is_named_and_the_remedy_cures(case: Break) -> None:
    names = names_of(case.subject)
    if case.since > INSTALLED:
        check_of_older(case)
        return
    found = broken(case)
    assert case.cause in " ".join(one.cause for one in found)
    main = next(one for one in found if case.cause in one.cause)
    assert case.remedy in main.remedy
    assert all(one.remedy or one.library for one in found)
    of_case = [at for one in found for at in one.places if at[1] == case.file]
    assert of_case
    lines = {line for name, _, line in of_case if name == NAME}
    assert lines <= case.lines(case.broken) | {1}  # of a function that runs eagerly as a whole

    number, by_cause = EVERY.index(case) % 4, {one.cause: one.remedy for one in found}
    others = broken(case, fullgraph=True) if number == 3 else broken(case, AROUND[number])
    assert others or number == 3  # which lets a number into the graph
    for one in others:
        assert one.remedy or one.library
        name, _, line = one.places[0]
        if number == 3 and name == NAME and "\n" not in case.broken:
            assert line in case.lines(case.broken)  # the line that raised
        if not main.library and "backward" not in main.remedy:
            assert one.remedy == by_cause.get(one.cause, one.remedy)

    for setting in settings_of(main.remedy):
        if setting in case.despite or (case.broken.count("#!") > 1 and not case.adds):
            continue
        value: Any = {eval(case.adds, names)} if case.adds else True
        with torch._dynamo.config.patch({setting: value}):
            assert broken(case) == [], setting

    value = value_of(case, names)
    cured = case.function(case.cured, names)
    reported, result = called(case, cured, value=value)
    assert reported == []
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch.manual_seed(0)
    torch.testing.assert_close(result, cured(x(), value))
    eager = case.function(case.broken, names)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        first, second = eager(x()), eager(x())
    if not case.varies and torch.equal(first, second):  # else it depends on chance
        torch.testing.assert_close(result, first)
