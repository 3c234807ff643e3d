"""Formats durations, numbers and places for people. Pure."""

from __future__ import annotations

import re

_WRAPPER = "external_utils.py"
COMPILED_AUTOGRAD = "<compiled autograd>"  # the file of a backward that it compiles
# Dynamo's name for the rest of a function after a graph break
_RESUMED = r"(?:torch_dynamo_resume_in_)+(?P<name>.+?)(?:_at_\d+)*_at_(?P<line>\d+)"


def duration(seconds: float) -> str:
    """A duration: ``116 ms``, ``2.1 s``, ``43 s``, ``2 min 29 s``, ``12 min``, ``3 h 5 min``."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    if seconds < 599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def step_length(seconds: float) -> str:
    """A step's length with the two digits that its bin can give: ``36 ms``, ``1.5 s``."""
    if seconds < 0.995:
        return f"{float(f'{seconds * 1e3:.2g}'):g} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else duration(seconds)


def exact_length(seconds: float) -> str:
    """The measured length of one step: ``36 ms``, ``10.0 s``, ``43 s``."""
    return f"{seconds:.1f} s" if 0.9995 <= seconds < 99.95 else duration(seconds)


def counted(number: int, noun: str, several: str = "") -> str:
    """``1 step``, ``3 steps``; ``several``: an irregular plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {several or noun + 's'}"


def one_line(text: str, longest: int) -> str:
    """``text`` without its line breaks, cut to ``longest`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def baseline_words(done: int, steps: int) -> str:
    """The progress of the eager baseline: ``baseline: step 7 of 20, ...``."""
    return f"baseline: step {min(done + 1, steps)} of {steps}, eager on purpose"


def resumed(name: str | None) -> tuple[str, int] | None:
    """The function and the line after its graph break; ``None`` for a whole function."""
    rest = re.fullmatch(_RESUMED, name) if name else None
    return (rest["name"], int(rest["line"])) if rest else None


def short_place(name: str, file: str | None = None) -> str:
    """The same for a label: ``forward``, or ``forward:47`` after its break there."""
    if file == _WRAPPER:
        return "the model"
    if file == COMPILED_AUTOGRAD:
        return "compiled autograd"
    rest = resumed(name)
    return f"{rest[0]}:{rest[1]}" if rest else name


def place(name: str | None, file: str | None = None, line: int | None = None) -> str:
    """The user's function: ```forward` (model.py:31)``; empty if unknown."""
    if not name:
        return ""
    if file == _WRAPPER:  # PyTorch's wrapper around its own modules: no user wrote that name
        return "the model"
    if file == COMPILED_AUTOGRAD:
        return "the backward by compiled autograd"
    if rest := resumed(name):
        return f"`{rest[0]}` after a graph break ({file or 'line'}:{rest[1]})"
    if not file:
        return f"`{name}`"
    return f"`{name}` ({file})" if line is None else f"`{name}` ({file}:{line})"


def called_from(caller: str | None) -> str:
    """The user's line that called a library's function; empty for a function of the user.

    ``caller``: as in the journal, empty if only library code is involved.
    """
    if caller is None:
        return ""
    return f", called from {caller}" if caller else ", called by library code alone"
