"""What a command prints. A reader who went away (``| head -1``) ends nothing with a traceback."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

PIPE_WIDTH = 120
_USUAL = os.terminal_size((80, 24))


def say(text: str, *, end: str = "\n") -> None:
    """Print on stdout, in one piece."""
    _write(sys.stdout, text + end)


def note(text: str, *, end: str = "\n") -> None:
    """Print on stderr."""
    _write(sys.stderr, text + end)


def plain(value: Any) -> Any:
    """``value``, with what would steer a terminal or cannot be printed spelled out in its strings.

    A run is named by whoever starts it, and its name may hold anything.
    """
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_visible, value))
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def width() -> int:
    """Columns to write for: what COLUMNS says, the terminal's, or for a pipe a usual line's."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    return _size(sys.stdout).columns if is_terminal() else PIPE_WIDTH


def height() -> int:
    """Lines of the terminal."""
    return _size(sys.stdout).lines


def is_terminal() -> bool:
    """Whether a person reads stdout as it is written."""
    return sys.stdout.isatty()


def has_colour() -> bool:
    """Whether stdout takes colours and nobody has declined them (no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def fits(text: str) -> str:
    """``text`` cut to one line of the terminal, for one that is written over."""
    limit = _size(sys.stderr).columns - 1
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _size(stream: TextIO) -> os.terminal_size:
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _USUAL
    return found if found.columns and found.lines else _USUAL


def _visible(sign: str) -> str:
    return " " if sign == "\n" else sign if sign.isprintable() else ascii(sign)[1:-1]


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        # what is left in the buffer is written at exit: to nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
