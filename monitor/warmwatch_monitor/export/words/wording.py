"""How numbers and PyTorch's words are put for people: durations, step lengths, reasons. Pure."""

from __future__ import annotations

from warmwatch_monitor.model import Compilation

_REASON_LIMIT = 160


def duration(seconds: float) -> str:
    """A duration: ``116 ms``, ``2.1 s``, ``43 s``, ``12 min``, ``3 h 5 min``, ``2 d 4 h``."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def step_length(seconds: float) -> str:
    """A step's length to two figures, as many as its bin is good for: ``36 ms``, ``1.5 s``."""
    if seconds < 0.995:
        return f"{float(f'{seconds * 1e3:.2g}'):g} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def counted(number: int, noun: str) -> str:
    """``1 step``, ``3 steps``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def why(compilation: Compilation) -> str:
    """Which compilation and why, on one line: ``0/1 forward: size mismatch at 0 (shape)``."""
    text = f"{compilation.id} {compilation.kind}"
    if compilation.reason:
        line = " ".join(compilation.reason.split())
        short = line if len(line) <= _REASON_LIMIT else f"{line[: _REASON_LIMIT - 3]}..."
        text += f": {short}"
    return f"{text} ({compilation.category})" if compilation.category else text
