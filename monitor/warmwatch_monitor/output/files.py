"""Files that a command was asked to write."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.output.console import say


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
    try:
        taken = _replaceable(place) and _replaced(place.resolve(), text)  # of a link: its file
    except OSError as error:
        raise _unwritten(place, error) from None
    if not taken:
        write(place, text)


def _replaceable(place: Path) -> bool:
    """Whether another file may stand there: what is protected against writing is not replaced.

    Nor is a pipe, nor a link that leads to no file: writing through it makes one, or says why not.
    """
    if not place.exists():
        return not place.is_symlink()
    writable = (place, place.resolve().parent)
    return place.is_file() and all(os.access(one, os.W_OK) for one in writable)


def _replaced(whole: Path, text: str) -> bool:
    """Written beside it, and then put there as it was.

    ``False`` where that cannot be: it is another user's, or mounted alone. Raises OSError where the
    text has no room.
    """
    aside = whole.with_name(f".warmwatch-{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        with contextlib.suppress(OSError):
            _as_is(whole, aside)
            aside.replace(whole)
            return True
        return False
    finally:
        aside.unlink(missing_ok=True)


def _as_is(whole: Path, aside: Path) -> None:
    """With the same owner, group and mode, where there is one."""
    if whole.exists():
        there = whole.stat()
        os.chown(aside, there.st_uid, there.st_gid)
        aside.chmod(stat.S_IMODE(there.st_mode))


def _unwritten(place: Path, error: OSError) -> UsageError:
    return UsageError(f"{place}: it cannot be written: {error.strerror}")
