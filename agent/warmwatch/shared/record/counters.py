"""Counter blocks: the layout follows from their fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from warmwatch.shared.record.facts import CompileCounts, StepCounts, Warmup

_Block = TypeVar("_Block", StepCounts, CompileCounts, Warmup)


def flatten(block: Any) -> list[int]:
    """The words of a block, in the order of its fields."""
    flat: list[int] = []
    for value in block:
        if isinstance(value, int):
            flat.append(value)
        else:  # a list of counts, or a Warmup
            flat.extend(value)
    return flat


def unflatten(default: _Block, words: Sequence[int]) -> _Block:
    """A block of the type of ``default`` from its words."""
    values: dict[str, Any] = {}
    start = 0
    for name, value in default._asdict().items():
        if isinstance(value, int):
            values[name] = words[start]
            start += 1
            continue
        given = words[start : start + len(value)]
        start += len(value)
        values[name] = unflatten(value, given) if isinstance(value, Warmup) else tuple(given)
    return default._replace(**values)


def index(block: Any, start: int = 0, prefix: str = "") -> dict[str, int]:
    """The word index of each field of a block, such as ``first_warmup.steps``."""
    counts: dict[str, int] = {}
    for name, value in block._asdict().items():
        counts[prefix + name] = start
        if isinstance(value, Warmup):
            counts |= index(value, start, f"{prefix}{name}.")
        start += 1 if isinstance(value, int) else len(value)
    return counts
