"""Blocks of counts as words: the layout follows from the fields of their dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from warmwatch.record.facts import CompileCounts, Header, StepCounts, Warmup

_Block = TypeVar("_Block", StepCounts, CompileCounts, Warmup)
# read once: a monitor flattens a block at each look at a rank that steps
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


def unflatten(default: _Block, words: Sequence[int], start: int = 0) -> _Block:
    """A block of the kind of ``default`` from its words."""
    values: dict[str, Any] = {}
    for field in fields(default):
        value = getattr(default, field.name)
        if isinstance(value, int):
            values[field.name], start = words[start], start + 1
        elif isinstance(value, tuple):
            values[field.name] = tuple(words[start : start + len(value)])
            start += len(value)
        else:
            values[field.name] = unflatten(value, words, start)
            start += len(fields(value))
    return type(default)(**values)


def index(block: Any, start: int = 0, prefix: str = "") -> dict[str, int]:
    """Where each field begins among the words of its block, such as ``first_warmup.steps``."""
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
