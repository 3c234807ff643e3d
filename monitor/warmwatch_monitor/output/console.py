"""What a command prints, and the one place that escapes text for a terminal."""

from __future__ import annotations

import os
import select
import sys
from typing import Any, TextIO

from warmwatch.shared.values import printable
from warmwatch_monitor.errors import OutputError

PIPE_WIDTH = 120
_USUAL = os.terminal_size((80, 24))


def say(text: str, *, end: str = "\n") -> None:
    """Print on stdout, in one piece."""
    _write(sys.stdout, printable(text, keep="\n") + end)


def draw(text: str, *, end: str = "\n") -> None:
    """Put out what a view made of a plain answer, with its colours and movements."""
    _write(sys.stdout, text + end)


def note(text: str, *, end: str = "\n") -> None:
    """Print on stderr."""
    _write(sys.stderr, printable(text, keep="\n") + end)


def rewrite(text: str) -> None:
    """Show ``text`` on stderr in place of the line that is there; "" clears it."""
    _write(sys.stderr, f"\r{fits(plain(text))}\x1b[K")


def plain(value: Any) -> Any:
    """``value``, each of its strings on one line and printable.

    A record is read so, but an answer may be of a Prometheus or of a daemon of another release.
    """
    if isinstance(value, str):
        return printable(value.replace("\n", " "))
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
    return sys.stdout is not None and sys.stdout.isatty()


def has_colour() -> bool:
    """Whether stdout takes colours, or is said to (force-color.org), and nobody has declined them
    (no-color.org), which goes before.
    """
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR", "")
    return is_redrawn() if not forced else forced != "0"


def is_redrawn() -> bool:
    """Whether stdout is a terminal whose lines can be written over."""
    return is_terminal() and os.environ.get("TERM") != "dumb"


def fits(text: str) -> str:
    """``text`` cut to one line of the terminal, for one that is written over."""
    limit = _size(sys.stderr).columns - 1
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def spilled(stream: TextIO) -> None:
    """What is left in the buffer of what cannot be written is written at exit: to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _size(stream: TextIO) -> os.terminal_size:
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _USUAL
    return found if found.columns and found.lines else _USUAL


def reader_left() -> bool:
    """Whether nobody reads stdout any more, as after ``| head -3``; a write would say so too."""
    try:
        watched = select.poll()
        watched.register(sys.stdout.fileno(), 0)  # errors are reported in any case
        return any(events & select.POLLERR for _, events in watched.poll(0))
    except (AttributeError, OSError, ValueError):  # it is closed, or no file
        return False


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # it was closed before we began
        return
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as error:
        if stream is sys.stderr and not isinstance(error, BrokenPipeError):
            return  # there is nowhere to say it, and the exit code stands
        spilled(stream)
        if not isinstance(error, BrokenPipeError):  # a full disk, a terminal that is gone
            raise OutputError(f"its output cannot be written ({error.strerror})") from None
