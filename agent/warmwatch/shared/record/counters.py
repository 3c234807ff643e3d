"""Counter blocks: the layout follows from their fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from warmwatch.shared.record.facts import (
    CATEGORIES,
    KINDS,
    PHASES,
    CompileCounts,
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


def flatten(block: Any) -> list[int]:
    """The words of a block, in the order of its fields."""
    words: list[int] = []
    for value in block:
        if isinstance(value, int):
            words.append(value)
        else:  # a list of counts, or a Warmup
            words.extend(value)
    return words


def shape(block: Any) -> tuple[int, ...]:
    """The number of words of each composite field of a block, in the order of the fields."""
    return tuple(len(value) for value in block if not isinstance(value, int))


def unflatten(default: _Block, words: Sequence[int], shape: Sequence[int] = ()) -> _Block:
    """A block of the type of ``default`` from its words.

    ``shape``: the number of words of each composite field, if another release wrote them. Missing
    fields stay as in ``default``. Further entries of a closed list are added to the one that
    ``OTHER`` names, or dropped; further fields are dropped.
    """
    values: dict[str, Any] = {}
    lengths, start = iter(shape), 0
    for name, value in default._asdict().items():
        length = 1 if isinstance(value, int) else next(lengths, len(value))
        given = words[start : start + length]
        start += length
        if len(given) < length:  # an older release: it ends before this field
            break
        if isinstance(value, int):
            values[name] = given[0]
        elif isinstance(value, Warmup):
            values[name] = unflatten(value, given)
        else:
            values[name] = _as_long(given, len(value), OTHER.get(name))
    return default._replace(**values)


def _as_long(given: Sequence[int], length: int, other: int | None) -> tuple[int, ...]:
    """``given``, with the number of entries of this release."""
    known = [*given[:length], *(0,) * (length - len(given))]
    if other is not None:
        known[other] += sum(given[length:])
    return tuple(known)


def index(block: Any, start: int = 0, prefix: str = "") -> dict[str, int]:
    """The word index of each field of a block, such as ``first_warmup.steps``."""
    found: dict[str, int] = {}
    for name, value in block._asdict().items():
        found[prefix + name] = start
        if isinstance(value, Warmup):
            found |= index(value, start, f"{prefix}{name}.")
        start += 1 if isinstance(value, int) else len(value)
    return found
