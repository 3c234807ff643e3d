"""Tables of the agent: bounded, and without callbacks."""

from __future__ import annotations

import ast
import gc
import operator
import sys
import weakref
from _thread import interrupt_main
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from warmwatch.shared.bounded import OfObjects


class Object:
    pass


def test_the_value_of_an_object_ends_with_the_object() -> None:
    known, one, other = OfObjects[str](10), Object(), Object()
    known.set(one, "first")
    known.set(other, "second")
    assert (known.get(one), known.get(other), known.get(Object())) == ("first", "second", None)
    assert known.pop(one) == "first"
    assert known.get(one) is None
    assert list(known.living()) == [other]
    del other
    gc.collect()
    assert list(known.living()) == []


def test_the_number_of_objects_is_bounded() -> None:
    known, objects = OfObjects[int](100), [Object() for _ in range(1000)]
    for number, one in enumerate(objects):
        known.set(one, number)
    assert list(known.living()) == objects[-100:]


def _dies_in_c_code(objects: list[Object]) -> None:
    """The objects die after Ctrl+C, before the main thread runs another line of Python."""
    deque(map(operator.call, (interrupt_main, objects.clear)), maxlen=0)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="operator.call is new in 3.11")
@pytest.mark.parametrize(("table", "is_lost"), [(weakref.WeakSet, True), (OfObjects, False)])
def test_an_interrupt_while_an_object_dies_is_not_lost(
    table: Callable[..., object], is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``WeakSet``, as the agent had, loses it in its callback: that is what this test shows."""
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: lost.append(what.exc_type))
    objects = [Object()]
    if isinstance(known := table(*([] if is_lost else [10])), OfObjects):
        known.set(objects[0], True)
    else:
        known.add(objects[0])  # type: ignore[attr-defined]
    interrupted = False
    try:
        _dies_in_c_code(objects)
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted is not is_lost
    assert bool(lost) is is_lost


def _calls_back(node: ast.AST) -> bool:
    """Whether ``node`` lets Python call the agent's code where an object dies."""
    match node:
        case ast.FunctionDef(name="__del__"):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "finalize"}
        case ast.Call(func=ast.Name(id="ref") | ast.Attribute(attr="ref"), args=[_, _]):
            return True
    return False


def test_no_code_of_the_agent_runs_where_an_object_dies() -> None:
    """Python would discard a ``KeyboardInterrupt`` that arrives there."""
    agent = Path(__file__).parents[3] / "agent/warmwatch"
    found = [
        f"{path.relative_to(agent)}:{getattr(node, 'lineno', 0)}"
        for path in sorted(agent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if _calls_back(node)
    ]
    assert found == []
