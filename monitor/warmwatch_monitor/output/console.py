"""Prints the output of commands. Only this module escapes text for a terminal."""

from __future__ import annotations

import codecs
import os
import select
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from warmwatch.shared.values import printable
from warmwatch_monitor.base.errors import OutputError

PIPE_WIDTH = 120
_USUAL = os.terminal_size((80, 24))
_IN_ASCII = {"█": "#", "▒": "w", "·": "."}  # for an encoding without them


def say(text: str, *, end: str = "\n") -> None:
    """Print on stdout, in one piece."""
    _write(sys.stdout, printable(text, keep="\n") + end)


def draw(text: str, *, end: str = "\n") -> None:
    """Print a view of an escaped answer, with its colours and cursor movements."""
    _write(sys.stdout, text + end)


def note(text: str, *, end: str = "\n") -> None:
    """Print on stderr."""
    _write(sys.stderr, printable(text, keep="\n") + end)


def rewrite(text: str) -> None:
    """Show ``text`` on stderr in place of the current line; "" clears it."""
    _write(sys.stderr, f"\r{fits(plain(text))}\x1b[K")


def plain(value: Any) -> Any:
    """``value``, of JSON or of Structs, with every string on one line and printable.

    Records are cleaned when read; answers from Prometheus or another release may not be.
    """
    if isinstance(value, str):
        return printable(value.replace("\n", " "))
    if isinstance(value, Mapping):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(plain, value))
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if (fields := getattr(value, "__struct_fields__", None)) is not None:
        return type(value)(**{name: plain(getattr(value, name)) for name in fields})
    return value


def width() -> int:
    """Line width: COLUMNS, else the terminal's, else a default for a pipe."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    return _size(sys.stdout).columns if is_terminal() else PIPE_WIDTH


def height() -> int:
    """Lines of the terminal."""
    return _size(sys.stdout).lines


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def has_colour() -> bool:
    """Whether stdout supports colours, or FORCE_COLOR is set (force-color.org).

    NO_COLOR (no-color.org) takes precedence.
    """
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR", "")
    return is_redrawn() if not forced else forced != "0"


def is_redrawn() -> bool:
    """Whether stdout is a terminal whose lines can be overwritten."""
    return is_terminal() and os.environ.get("TERM") != "dumb"


def fits(text: str) -> str:
    """``text`` cut to one line of the terminal, for lines that are overwritten."""
    limit = _size(sys.stderr).columns - 1
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def spilled(stream: TextIO) -> None:
    """Redirect the stream to nowhere: Python flushes its unwritable buffer again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _size(stream: TextIO) -> os.terminal_size:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _USUAL
    return size if size.columns and size.lines else _USUAL


_without_reader = set[int]()  # descriptors that lead nowhere since their reader is gone


def reader_left() -> bool:
    """Whether the reader of stdout is gone, as after ``| head -3``; a write would fail too."""
    try:
        descriptor, watched = sys.stdout.fileno(), select.poll()
        watched.register(descriptor, 0)  # errors are reported in any case
        return descriptor in _without_reader or any(
            events & select.POLLERR for _, events in watched.poll(0)
        )
    except (AttributeError, OSError, ValueError):  # it is closed, or no file
        return False


def _encodable(error: UnicodeError) -> tuple[str | bytes, int]:
    """A mark of the bars in ASCII, anything else as an escape."""
    if isinstance(error, UnicodeEncodeError):
        mark = _IN_ASCII.get(error.object[error.start])
        if mark is not None:
            return mark, error.start + 1
    return codecs.backslashreplace_errors(error)


codecs.register_error("warmwatch.console", _encodable)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # it was closed before the start
        return
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "warmwatch.console").decode(encoding))
        stream.flush()
    except OSError as error:
        if stream is sys.stderr and not isinstance(error, BrokenPipeError):
            return  # there is nowhere to report it; the exit code stays
        spilled(stream)
        if isinstance(error, BrokenPipeError):
            _without_reader.add(stream.fileno())
        else:  # a full disk, a closed terminal
            raise OutputError(f"its output cannot be written ({error.strerror})") from None
