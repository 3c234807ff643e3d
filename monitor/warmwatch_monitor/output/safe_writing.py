"""Write a file in a directory that another user may change, without serving that user's links.

Each name is looked up in a directory descriptor, and a link is followed only if root or this user
made it. What follows a check is done with a descriptor, never with the path again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.output.console import say

_MOST_LINKS = 40  # as the kernel
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class UntrustedLinkError(OSError):
    """The path is another user's link."""

    def __init__(self, path: str, uid: int) -> None:
        text = f"it is a link of user {uid}, who could aim it at any file; name the file itself"
        super().__init__(errno.ELOOP, text, path)


def replace(path: str, data: bytes) -> None:
    """Replace the file's content; the old content stays on failure, such as a full disk.

    Writes a temporary file and renames it, with the owner and mode of the file that it replaces.
    Where that is impossible, the file is written in place: a pipe, a device, a mount point, another
    user's file. Raises OSError.
    """
    with _found(path) as (directory, name, there):
        if not _replaced(directory, name, there, data):
            _write_in_place(directory, name, there, data, os.O_TRUNC)


def append_to(path: str, data: bytes) -> None:
    """Append to the file, and create it if it does not exist. Raises OSError."""
    with _found(path) as (directory, name, there):
        _write_in_place(directory, name, there, data, os.O_APPEND)


def opened(path: str) -> int:
    """A descriptor of the file, which is empty now, for output that comes bit by bit."""
    with _found(path) as (directory, name, there):
        return _opened(directory, name, there, os.O_TRUNC)


@contextlib.contextmanager
def _found(path: str) -> Iterator[tuple[int, str, os.stat_result | None]]:
    """The directory's descriptor, the name in it, and the status of what has that name.

    That is a link only in ``/proc``, where links name open files: ``/dev/stdout`` leads there.
    """
    with contextlib.ExitStack() as stack:
        directory: int | None = None
        for _ in range(_MOST_LINKS):
            above, name = os.path.split(path)
            directory = os.open(above or ".", os.O_PATH | os.O_DIRECTORY, dir_fd=directory)
            stack.callback(os.close, directory)
            try:
                link = os.open(name, _LOOK, dir_fd=directory)
            except FileNotFoundError:
                yield directory, name, None
                return
            stack.callback(os.close, link)
            there = os.fstat(link)
            if not stat.S_ISLNK(there.st_mode) or _is_of_proc(there):
                yield directory, name, there
                return
            if there.st_uid not in (0, os.geteuid()):
                raise UntrustedLinkError(path, there.st_uid)
            path = os.readlink("", dir_fd=link)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _is_of_proc(there: os.stat_result) -> bool:
    try:
        return there.st_dev == os.lstat("/proc/self").st_dev
    except OSError:
        return False


def _replaced(directory: int, name: str, there: os.stat_result | None, data: bytes) -> bool:
    """Whether the file could be replaced. Raises OSError if the disk is full."""
    if not os.access(".", os.W_OK, dir_fd=directory):
        return False
    if there is not None and not _may_replace(directory, name, there):
        return False
    draft = f".warmwatch-{secrets.token_hex(8)}"
    flags = _WRITE | os.O_EXCL
    made = os.open(draft, flags, 0o666 if there is None else 0o600, dir_fd=directory)
    try:
        try:
            _write_all(made, data)
            with contextlib.suppress(OSError):
                if there is not None:
                    os.fchown(made, there.st_uid, there.st_gid)
                    os.fchmod(made, there.st_mode & 0o777)
                os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
                return True
            return False
        finally:
            os.close(made)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=directory)


def _may_replace(directory: int, name: str, there: os.stat_result) -> bool:
    """A regular file that this user may write to."""
    return stat.S_ISREG(there.st_mode) and os.access(
        name, os.W_OK, dir_fd=directory, follow_symlinks=False
    )


def _write_in_place(
    directory: int, name: str, there: os.stat_result | None, data: bytes, how: int
) -> None:
    descriptor = _opened(directory, name, there, how)
    try:
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _opened(directory: int, name: str, there: os.stat_result | None, how: int) -> int:
    if there is not None and stat.S_ISLNK(there.st_mode):  # in /proc: append, as to a terminal
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
    else:
        flags = _WRITE | how
    return os.open(name, flags, 0o666, dir_fd=directory)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


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
        (append_to if append else replace)(str(place), data)
    except OSError as error:
        raise UsageError(f"{place}: it cannot be written: {error.strerror}") from None
