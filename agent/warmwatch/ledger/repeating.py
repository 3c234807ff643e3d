"""The steps in which each function compiled: how many in a row, and how many in all.

A warm-up compiles a function once or twice more: a float becomes a tensor, a size becomes dynamic.
One that compiles again in each of several steps in a row will go on, so that is no warm-up. One
that reached the recompile limit within one step needs all its variants in every step. CUDA graphs
begin again with each new size, as a recompile does, though nothing compiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_MOST = 256  # rows
_AGAIN = ("category", "again", "instance", "failure", "new_sizes")
_Function = tuple[Any, ...]


class _Steps(NamedTuple):
    """The steps in which one function compiled. ``again``, ``row``: the last one in which it
    compiled again, and the steps in a row up to that one. ``last``, ``number``: the last one that
    compiled a forward, and how many did.
    """

    again: int = 0
    row: int = 0
    last: int = 0
    number: int = 0


class Repeating:
    """The steps, counted from 1, in which each function compiled or failed to."""

    def __init__(self) -> None:
        # by whether it failed, too; the latest is last
        self._known: dict[tuple[_Function, bool], _Steps] = {}

    def add(self, kind: str, values: Mapping[str, Any], step: int) -> int:
        """The steps in a row, ``step`` included, in which the function of ``values`` compiled
        again or began CUDA graphs of a new size, or, if this one failed, in which it failed; 0 if
        this is none of them. A message names only one of the two, so each has its own row.

        ``kind`` and ``values``: of a compilation, as in the journal.
        """
        if values.get("at_limit"):
            return 0
        function = _function(values), "failure" in values
        again, row, last, number = self._known.pop(function, _Steps())
        repeats = any(name in values for name in _AGAIN)
        if repeats:
            row = row if again == step else row + 1 if again == step - 1 else 1
            again = step
        if kind == "forward" and last != step:
            last, number = step, number + 1
        self._known[function] = _Steps(again, row, last, number)
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
        return row if repeats else 0

    def longest(self, step: int) -> int:
        """The longest row that ``step`` or the step before it ended, of any function."""
        return max(
            (steps.row for steps in self._known.values() if steps.again >= step - 1), default=0
        )

    def of(self, values: Mapping[str, Any], step: int) -> tuple[int, int]:
        """Of the function of ``values``: its row, and the number of steps that compiled it, with
        ``step``, which would have."""
        steps = self._known.get((_function(values), False), _Steps())
        return steps.row, steps.number + (steps.last != step)


def _function(values: Mapping[str, Any]) -> _Function:
    code = values.get("code")
    return (code,) if code else tuple(values.get(key) for key in ("name", "file", "line"))
