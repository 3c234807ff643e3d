"""Our ``NamedTuple`` does what ``typing``'s does."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from warmwatch.shared.named_tuple import NamedTuple


class Ours(NamedTuple):
    """A place."""

    name: str
    line: int = 1
    notes: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        return self.line + 1


class Theirs(typing.NamedTuple):
    """A place."""

    name: str
    line: int = 1
    notes: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        return self.line + 1


def matched(place: Any) -> Any:
    match place:
        case Ours(name, line) | Theirs(name, line):
            return name, line


SAME: list[Callable[[Any], Any]] = [
    lambda kind: kind._fields,
    lambda kind: kind._field_defaults,
    lambda kind: kind.__doc__,
    lambda kind: kind("a"),
    lambda kind: kind("a", 2, ("b",)),
    lambda kind: kind("a", notes=("b",)),
    lambda kind: kind(notes=("b",), name="a"),
    lambda kind: kind._make(("a", 2, ())),
    lambda kind: kind("a")._replace(line=3),
    lambda kind: kind("a")._asdict(),
    lambda kind: kind("a").line + kind("a").end,
    lambda kind: repr(kind("a")).removeprefix(kind.__name__),
    lambda kind: matched(kind("a", 7)),
    lambda kind: kind("a") == kind("a", 1) == ("a", 1, ()),
    lambda kind: copy.deepcopy(kind("a")),
    lambda kind: pickle.loads(pickle.dumps(kind("a"))),
]
WRONG: list[Callable[[Any], Any]] = [
    lambda kind: kind(),
    lambda kind: kind(line=2),
    lambda kind: kind("a", 1, (), 4),
    lambda kind: kind("a", name="b"),
    lambda kind: kind("a", unknown=1),
    lambda kind: kind("a")._replace(unknown=1),
    lambda kind: setattr(kind("a"), "line", 2),
]


@pytest.mark.parametrize("use", SAME)
def test_each_use_has_the_same_result(use: Callable[[Any], Any]) -> None:
    ours, theirs = use(Ours), use(Theirs)
    assert ours == theirs
    assert isinstance(ours, Ours) == isinstance(theirs, Theirs)


@pytest.mark.parametrize("use", WRONG)
def test_each_misuse_raises_the_same_error(use: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)) as theirs:
        use(Theirs)
    with pytest.raises(theirs.type):
        use(Ours)
