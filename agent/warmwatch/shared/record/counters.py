"""Counter blocks: the layout follows from the fields of their dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from warmwatch.shared.record.facts import (
    CATEGORIES,
    KINDS,
    PHASES,
    CompileCounts,
    Header,
    StepCounts,
    Warmup,
)

_Block = TypeVar("_Block", StepCounts, CompileCounts, Warmup)
# The entry that counts unknown entries of a newer release.
OTHER = {
    "phase_ns": PHASES.index("other"),
    "compilations": KINDS.index("other"),
    "recompiles": CATEGORIES.index("other"),
}
# cached: a monitor flattens a block at each poll of a rank that steps
_NAMES = {
    kind: tuple(field.name for field in fields(kind))
    for kind in (Header, StepCounts, CompileCounts, Warmup)
}


def flatten(block: Any) -> list[int]:
    """The words of a block, in the order of its fields."""
    words: list[int] = []
    for name in _NAMES[type(block)]:
        value = getattr(block, name)
        if isinstance(value, int):
            words.append(value)
        else:
            words.extend(value if isinstance(value, tuple) else flatten(value))
    return words


def shape(block: Any) -> tuple[int, ...]:
    """The number of words of each composite field of a block, in the order of the fields."""
    values = (getattr(block, name) for name in _NAMES[type(block)])
    return tuple(
        len(value) if isinstance(value, tuple) else len(flatten(value))
        for value in values
        if not isinstance(value, int)
    )


def unflatten(default: _Block, words: Sequence[int], shape: Sequence[int] = ()) -> _Block:
    """A block of the type of ``default`` from its words.

    ``shape``: the number of words of each composite field, if another release wrote them. Missing
    fields stay as in ``default``. Further entries of a closed list are added to the one that
    ``OTHER`` names, or dropped; further fields are dropped.
    """
    values: dict[str, Any] = {}
    lengths, start = iter(shape), 0
    for field in fields(default):
        value = getattr(default, field.name)
        if isinstance(value, int):
            length = 1
        else:
            usual = len(value) if isinstance(value, tuple) else len(fields(value))
            length = next(lengths, usual)
        given = words[start : start + length]
        start += length
        if len(given) < length:  # an older release: it ends before this field
            break
        if isinstance(value, int):
            values[field.name] = given[0]
        elif isinstance(value, tuple):
            values[field.name] = _as_long(given, len(value), OTHER.get(field.name))
        else:
            values[field.name] = unflatten(value, given)
    return replace(default, **values)


def _as_long(given: Sequence[int], length: int, other: int | None) -> tuple[int, ...]:
    """``given``, with the number of entries of this release."""
    known = [*given[:length], *(0,) * (length - len(given))]
    if other is not None:
        known[other] += sum(given[length:])
    return tuple(known)


def index(block: Any, start: int = 0, prefix: str = "") -> dict[str, int]:
    """The word index of each field of a block, such as ``first_warmup.steps``."""
    found: dict[str, int] = {}
    for field in fields(block):
        value = getattr(block, field.name)
        found[prefix + field.name] = start
        if isinstance(value, int):
            start += 1
        elif isinstance(value, tuple):
            start += len(value)
        else:
            found |= index(value, start, f"{prefix}{field.name}.")
            start += len(fields(value))
    return found
