"""Output files of commands."""

from __future__ import annotations

from pathlib import Path

from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.output import safe_writing
from warmwatch_monitor.output.console import say


def place_of(option: str, file: str | None) -> Path | None:
    """The output path, checked to be writable before a training spends minutes."""
    if file is None:
        return None
    place = Path(file)
    try:
        there = file == "-" or place.absolute().parent.is_dir()
    except OSError:
        raise UsageError(
            f"{option}: {file} is relative, and the working directory was removed; give an "
            "absolute path"
        ) from None
    if not there:
        raise UsageError(f"{option}: the directory of {file} does not exist: create it first")
    if place.is_dir():
        raise UsageError(f"{option}: {file} is a directory, not a file")
    return place


def write(place: Path, text: str, *, append: bool = False) -> None:
    """Write the file, or to stdout if it is ``-``; the old content stays on failure.

    Raises UsageError on failure.
    """
    if str(place) == "-":
        say(text.rstrip("\n"))
        return
    data = text.encode("utf-8", "backslashreplace")
    try:
        (safe_writing.append if append else safe_writing.replace)(str(place), data)
    except OSError as error:
        raise UsageError(f"{place}: it cannot be written: {error.strerror}") from None
