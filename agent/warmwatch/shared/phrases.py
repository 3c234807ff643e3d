"""Formats durations, numbers and places for people. Pure."""

from __future__ import annotations

import re

_WRAPPER = "external_utils.py"
COMPILED_AUTOGRAD = "<compiled autograd>"  # the file of a backward that it compiles
# Dynamo's name for the rest of a function after a graph break
_RESUMED = r"(?:torch_dynamo_resume_in_)+(?P<name>.+?)(?:_at_\d+)*_at_(?P<line>\d+)"


def duration(seconds: float) -> str:
    """A duration: ``116 ms``, ``2.1 s``, ``43 s``, ``149 s``, ``12 min``, ``3 h 5 min``.

    Seconds up to 10 minutes, in tables and sentences: so that two views can be compared.
    """
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 599.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def took(seconds: float) -> str:
    """What was measured, in three digits: ``116 ms``, ``2.14 s``, ``43.2 s``, ``12 min 5 s``.

    For step lengths and costs; :func:`duration` is for progress. Larger ones are ``3 h 5 min`` and
    ``2 d 4 h``. A negative one has a minus, unless it is rounded to zero.
    """
    if seconds <= 0:
        return f"-{took(-seconds)}" if seconds else "0 ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 600:
        return f"{whole} s"
    if whole < 7200:
        return _two(whole, 60, "min", 1, "s")
    if whole < 48 * 3600:
        return _two(whole, 3600, "h", 60, "min")
    return _two(whole, 86400, "d", 3600, "h")


def _two(whole: int, large: int, of_large: str, small: int, of_small: str) -> str:
    many, rest = divmod(whole, large)
    few = rest // small
    return f"{many} {of_large} {few} {of_small}" if few else f"{many} {of_large}"


def counted(number: int, noun: str, several: str = "") -> str:
    """``1 step``, ``3 steps``; ``several``: an irregular plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {several or noun + 's'}"


def one_line(text: str, longest: int) -> str:
    """``text`` without its line breaks, cut to ``longest`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def continued(sentence: str) -> str:
    """``sentence`` after a colon or another word: its first letter is small, except of a name such
    as PyTorch."""
    rest = sentence.partition(" ")[0][1:]
    return sentence if rest != rest.lower() else f"{sentence[:1].lower()}{sentence[1:]}"


def baseline_words(done: int, steps: int) -> str:
    """The progress of the eager baseline: ``baseline: step 7 of 20, ...``."""
    return f"baseline: step {min(done + 1, steps)} of {steps}, eager on purpose"


def resumed(name: str | None) -> tuple[str, int] | None:
    """The function and the line after its graph break; ``None`` for a whole function."""
    rest = re.fullmatch(_RESUMED, name) if name else None
    return (rest["name"], int(rest["line"])) if rest else None


def without_line(name: str) -> str:
    """The name for a comparison: without the line in Dynamo's name for the rest of a function."""
    rest = resumed(name)
    return f"{rest[0]} after a graph break" if rest else name


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
        where = f"{file}:{rest[1]}" if file else f"line {rest[1]}"
        return f"`{rest[0]}` after a graph break ({where})"
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


def broken_place(
    name: str | None, file: str | None, line: int | None, caller: str | None = None
) -> str:
    """The place of a graph break, and the user's line that called it, if that is another one."""
    by = None if caller == f"{file}:{line}" else caller
    return f"{place(name, file, line)}{called_from(by)}"
