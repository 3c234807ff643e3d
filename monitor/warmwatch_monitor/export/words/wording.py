"""How numbers and PyTorch's words are put for people: durations, step lengths, reasons. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmwatch.words.phrases import (
    counted,
    duration,
    exact_length,
    one_line,
    place,
    step_length,
)

if TYPE_CHECKING:  # the command line formats numbers without loading the model
    from warmwatch_monitor.model import Compilation, Underway

__all__ = [
    "backward_of",
    "counted",
    "duration",
    "exact_length",
    "own_words",
    "place",
    "step_length",
    "target",
]
_REASON_LIMIT = 80


def target(of: Underway | Compilation | None) -> str:
    """What is compiled, with a space before it; empty where that is not known."""
    named = "" if of is None else place(of.name, of.file, of.line)
    return f" {named}" if named else ""


def backward_of(of: Underway) -> str:
    """``the backward of `forward` (model.py:31)``."""
    named = place(of.name, of.file, of.line)
    return f"the backward of {named}" if named else "a backward"


def own_words(reason: str, longest: int = _REASON_LIMIT) -> str:
    """PyTorch's words on one line, which ends."""
    return one_line(reason, longest)
