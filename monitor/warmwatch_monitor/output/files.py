"""Output files of commands."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from warmwatch_monitor.errors import UsageError
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
    """Write to the file, or to stdout if it is ``-``. Raises UsageError on failure."""
    if str(place) == "-":
        say(text.rstrip("\n"))
        return
    try:
        with place.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _unwritten(place, error) from None


def write_whole(place: Path, text: str) -> None:
    """Replace the file's content; the old content stays on failure, such as a full disk.

    Raises UsageError on failure.
    """
    try:
        taken = _replaceable(place) and _replaced(place.resolve(), text)  # of a link: its file
    except OSError as error:
        raise _unwritten(place, error) from None
    if not taken:
        write(place, text)


def _replaceable(place: Path) -> bool:
    """Whether the file may be replaced; a write-protected file may not.

    A pipe or a dangling link may not either: writing through the link creates its file or fails.
    """
    if not place.exists():
        return not place.is_symlink()
    writable = (place, place.resolve().parent)
    return place.is_file() and all(os.access(one, os.W_OK) for one in writable)


def _replaced(whole: Path, text: str) -> bool:
    """Write a temporary file next to it, then rename it with the same owner and mode.

    ``False`` if that is impossible: another user owns it, or it is a mount point. Raises OSError
    if the disk is full.
    """
    draft = whole.with_name(f".warmwatch-{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        with contextlib.suppress(OSError):
            _as_is(whole, draft)
            draft.replace(whole)
            return True
        return False
    finally:
        draft.unlink(missing_ok=True)


def _as_is(whole: Path, draft: Path) -> None:
    """Copy owner, group and mode of ``whole``, if it exists."""
    if whole.exists():
        there = whole.stat()
        os.chown(draft, there.st_uid, there.st_gid)
        draft.chmod(stat.S_IMODE(there.st_mode))


def _unwritten(place: Path, error: OSError) -> UsageError:
    return UsageError(f"{place}: it cannot be written: {error.strerror}")
