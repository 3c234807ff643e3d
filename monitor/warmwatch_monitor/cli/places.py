"""Files that a command was told to write."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from warmwatch_monitor.cli.output import say
from warmwatch_monitor.errors import UsageError


def place_of(option: str, file: str | None) -> Path | None:
    """Where to write, known to be possible before minutes are spent on a training."""
    if file is None:
        return None
    place = Path(file)
    try:
        there = file == "-" or place.absolute().parent.is_dir()
    except OSError:
        raise UsageError(
            f"{option}: {file} is relative, and the working directory was removed; give it from "
            "the root, or go to another directory"
        ) from None
    if not there:
        raise UsageError(f"{option}: the folder of {file} does not exist: make it first")
    if place.is_dir():
        raise UsageError(f"{option}: {file} is a folder; it takes a file")
    return place


def write(place: Path, text: str, *, append: bool = False) -> None:
    """Into the file, or to stdout where it is ``-``. Raises UsageError where it cannot be."""
    if str(place) == "-":
        say(text.rstrip("\n"))
        return
    try:
        with place.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _unwritten(place, error) from None


def write_whole(place: Path, text: str) -> None:
    """In place of what the file holds, which stays where that cannot be: a full disk, say.

    Raises UsageError then.
    """
    aside: Path | None = None
    try:
        whole = place.resolve()  # of a link, what it leads to
        if whole.exists() and not (whole.is_file() and os.access(whole.parent, os.W_OK)):
            return write(place, text)  # a pipe, or a file that can be had in its place alone
        aside = whole.with_name(f".{whole.name}.{os.getpid()}")
        aside.write_text(text, encoding="utf-8")
        if whole.exists():
            aside.chmod(whole.stat().st_mode)
        aside.replace(whole)
    except OSError as error:
        if aside is not None:
            with contextlib.suppress(OSError):
                aside.unlink()
        raise _unwritten(place, error) from None


def _unwritten(place: Path, error: OSError) -> UsageError:
    return UsageError(f"{place}: it cannot be written: {error.strerror}")
