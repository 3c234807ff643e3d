"""Finished compilations, cache lookups and their keys, fallbacks.

The first key of each cache is written in full, later ones as a difference. The total size is
bounded.

The steps in which each function compiled are counted, in a row and in all. A warm-up compiles a
function once or twice more: a float becomes a tensor, a size becomes dynamic. One that compiles
again in each of several steps in a row will go on, so that is no warm-up. One that reached the
recompile limit within one step needs all its variants in every step. CUDA graphs begin again with
each new size, as a recompile does, though nothing compiles.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from warmwatch.ledger.activities import Activities
from warmwatch.ledger.counters import CounterStore, PytorchState, counter
from warmwatch.shared import record
from warmwatch.shared.bounded import Bounded
from warmwatch.shared.fallbacks import DISABLED, FLEX, cause_of, function_of
from warmwatch.shared.record import COMPILE_INDEX as AT

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


ROOM = 512 * 1024  # of packed components in a process's journal
LONGEST = 48 * 1024  # of one; a reader rejects longer lines
MOST = 20_000
_HASH = 6
_LOOKED_AT = 4_000  # characters of a text
_PART = re.compile(r"\[([a-z2-7]{6,})\] ([A-Za-z_]\w{0,79})(?:\[([\w.]{1,80})\])?(?=:)")
_WHOLE_NAME = re.compile(r"\[([a-z2-7]{6,})\] ([A-Za-z_]\w{0,79})")
_INDEX = re.compile(r"(device\(type='(?:cuda|xpu)', index=|device='?(?:cuda|xpu):)(\d{1,4})")
_OTHER_CAUSES = {FLEX: "unfused", DISABLED: "skipped"}  # counted in a word of its own
_INPUTS = "example_inputs"
DEVICE = "device_index"


def named(lines: Sequence[str]) -> dict[str, str]:
    """The parts of a key: short hash by name; the last one wins for repeated names."""
    parts: dict[str, str] = {}
    indices: set[str] = set()
    for line in lines[:MOST]:
        if (match := _PART.match(line)) is not None:
            name = match[2] if match[3] is None else f"{match[2]}[{match[3]}]"
        elif (match := _WHOLE_NAME.match(line)) is not None:
            name = f"{match[2]}[...]"  # a key of a dict may be any text
        else:
            continue
        parts[name] = match[1][:_HASH]
        if match[2] == _INPUTS and (on := _INDEX.findall(line[:_LOOKED_AT])):
            indices.update(index for _, index in on)
            parts[name] = _hash(_INDEX.sub(r"\1", line[match.end() : _LOOKED_AT]))
    if indices:
        parts[DEVICE] = ",".join(sorted(indices))[:_HASH]
    return parts


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_HASH // 2).hexdigest()


class WrittenKeys:
    """The first key of each cache that was written, and the space left."""

    def __init__(self) -> None:
        self._first: dict[str, Mapping[str, str]] = {}
        self._room = ROOM

    def packed(self, cache: str, lines: Sequence[str]) -> dict[str, Any]:
        """The parts of a key for the journal; only their number if there is no space left."""
        if not lines:
            return {}
        parts = named(lines)
        first = self._first.get(cache)
        changed = parts if first is None else _differences(first, parts)
        text = "\n".join(f"{name} {short}" for name, short in changed.items())
        data = base64.b64encode(zlib.compress(text.encode(), 6)).decode()
        if len(data) > min(LONGEST, self._room):
            return {"parts": len(parts)}
        self._room -= len(data)
        if first is None:
            self._first[cache] = parts
        return {"parts": len(parts), "whole": first is None, "packed": data}


def _differences(first: Mapping[str, str], parts: Mapping[str, str]) -> dict[str, str]:
    """The parts that differ from the first; ``-`` for a part that is missing now."""
    changed = {name: short for name, short in parts.items() if first.get(name) != short}
    return {**changed, **{name: "-" for name in first if name not in parts}}


_MOST_LINES = 100  # of skipped CUDA graphs, which PyTorch reports for each graph, and of spills
_MOST_AT_LIMIT = 4096  # frames


class Compilations:
    """Counts compilations by kind, and writes a line for each."""

    def __init__(self, counters: CounterStore, state: PytorchState, activities: Activities) -> None:
        self._counters, self._block, self._store = counters, counters.block, counters.store
        self._state = state
        self._written_keys = WrittenKeys()
        self._written: Counter[str] = Counter()
        self._activities, self._accounted = activities, activities.phases_at(0)
        self._at_limit: Bounded[Any, bool] = Bounded(_MOST_AT_LIMIT)
        self._repeating = Repeating()

    def compilation(self, fact: str, now: int, values: Mapping[str, Any]) -> None:
        block, kind = self._block, values["kind"]
        block[AT["failures"]] += "failure" in values
        if "at_limit" not in values:  # else PyTorch refused it: nothing was compiled
            self._count(kind, values)
        step = self._store.steps() + 1
        if in_a_row := self._repeating.add(kind, values, step):
            block[AT["repeated"]] = self._repeating.longest(step)
            block[AT["repeated_step"]] = step
            values = {**values, "in_a_row": in_a_row}
        if phases := self._phases(now):
            values = {**values, "phase_us": phases}
        if memory := self._state.read_memory(now):
            values = {**values, "allocated": memory[0], "reserved": memory[1]}
        self._store.publish(block)
        self._store.note(fact, now, {"kind": kind, "steps": step - 1, **values})

    def _count(self, kind: str, values: Mapping[str, Any]) -> None:
        block = self._block
        block[AT["compilations"] + record.KINDS.index(kind)] += 1
        category = values.get("category")
        if category == record.NEW_INSTANCE:
            block[counter("new_instances")] += 1
        elif category:
            block[AT["recompiles_by_category"] + record.CATEGORIES.index(category)] += 1
        # After a reset PyTorch does not call it a recompile, but the training waits for it again.
        came_back = bool(category) or "again" in values
        block[AT["recompiles_after_warm"]] += came_back and block[AT["warmups"]] > 0

    def _phases(self, now: int) -> dict[str, int]:
        """Time of each phase since the previous compilation, in microseconds.

        PyTorch's figures of a compilation do not separate C++ kernels and cache loads from the
        rest. With these, the phases of all compilations add up to those of the run.
        """
        times = self._activities.phases_at(now)
        pairs = zip(record.PHASES, times, self._accounted, strict=True)
        self._accounted = times
        return {name: (new - old) // 1000 for name, new, old in pairs if new - old >= 1000}

    def cache(self, fact: str, now: int, values: Mapping[str, Any]) -> None:
        """Write the parts of the key instead of its lines."""
        fields = {name: value for name, value in values.items() if name != "lines"}
        parts = self._written_keys.packed(values["cache"], values["lines"])
        self._store.note(fact, now, {**fields, **parts})

    def fallback(self, fact: str, now: int, values: Mapping[str, Any]) -> None:
        """Count each function once."""
        if (key := function_of(values)) in self._at_limit:
            return
        self._at_limit[key] = True
        if (word := _OTHER_CAUSES.get(cause_of(values.get("setting")))) is not None:
            self._block[AT[word]] += 1
        row, steps = self._repeating.of(values, self._store.steps() + 1)
        fields = {name: value for name, value in values.items() if name != "code"}
        fields.update(steps=self._store.steps(), in_a_row=row, in_steps=steps)
        self._counters.count("fallbacks", fact, now, fields)

    def cudagraph_skip(self, fact: str, now: int, values: Mapping[str, Any]) -> None:
        self._state.count_skips()
        self._store.publish(self._block)
        self._first(fact, now, values)

    def spill(self, fact: str, now: int, values: Mapping[str, Any]) -> None:
        self._first(fact, now, values)

    def _first(self, fact: str, now: int, values: Mapping[str, Any]) -> None:
        """Write the first lines of this fact only."""
        self._written[fact] += 1
        if self._written[fact] <= _MOST_LINES:
            self._store.note(fact, now, values)
