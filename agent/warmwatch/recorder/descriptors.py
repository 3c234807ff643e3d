"""File descriptors that survive ``closefrom`` and are never confused with the program's.

The agent moves its descriptors to high numbers, which the system is unlikely to assign to another
file, and checks each before use: a descriptor that now belongs to another file is left alone. The
journal is appended to through such a descriptor.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from warmwatch._guard import pass_on

File = tuple[int, int]  # device and inode
_HIGH = (1000, 200, 3)  # lower bounds to try in turn: a process may be allowed fewer descriptors
_GET_FLAGS, _SET_FLAGS, _NO_COPY_ON_WRITE = 0x80086601, 0x40086602, 0x00800000


def file_of(status: os.stat_result) -> File:
    """The device and inode of a file status."""
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def own_folder(path: str | os.PathLike[str]) -> Iterator[int]:
    """A descriptor of a folder of this user, to open files in it.

    Another user may rename what is in a shared directory, so a path may lead to another folder at
    its next use; a descriptor does not.

    Raises:
        OSError: there is none, or it is a link or another user's.
    """
    inside = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(inside).st_uid != os.geteuid():
            raise PermissionError(f"{os.fspath(path)} is not a folder of this user's")
        yield inside
    finally:
        os.close(inside)


def leads_to(descriptor: int, file: File | None) -> bool:
    """Whether a descriptor still belongs to ``file``."""
    try:
        return descriptor >= 0 and file_of(os.fstat(descriptor)) == file
    except OSError as error:
        pass_on(error)
        return False


def high_copy(descriptor: int) -> int:
    """A duplicate of a descriptor, with a high number.

    Raises:
        OSError: no descriptor is free.
    """
    for least in _HIGH:
        try:
            return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
        except OSError as error:
            pass_on(error)
            problem = error
    raise problem


def opened_high(
    path: str | os.PathLike[str], flags: int, mode: int = 0, *, inside: int | None = None
) -> int:
    """Open a file with a high number. Not for a locked file: closing the low number unlocks it.

    ``inside``: the descriptor of the folder that a relative path starts from.
    """
    low = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=inside)
    try:
        return high_copy(low)
    finally:
        os.close(low)


def overwrite_in_place(file: int) -> None:
    """Disable copy-on-write on btrfs, where each store would go to a newly allocated block."""
    flags = bytearray(8)
    try:
        fcntl.ioctl(file, _GET_FLAGS, flags)
        changed = int.from_bytes(flags, "little") | _NO_COPY_ON_WRITE
        fcntl.ioctl(file, _SET_FLAGS, changed.to_bytes(8, "little"))
    except OSError as error:  # other filesystems do not have the flag, or need it
        pass_on(error)


# `json.dumps` makes an encoder at each call
_encoded = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_LONGEST_TEXT = 4_000  # characters: monitors read no more, and no line that is too long


def line_of(event: str, t: int, values: Mapping[str, Any]) -> bytes:
    """One line of the journal; values that are ``None`` are left out, and long texts are cut.

    ``packed`` is no text: whoever packs it bounds it.
    """
    present = {
        k: v[:_LONGEST_TEXT] if isinstance(v, str) and k != "packed" else v
        for k, v in values.items()
        if v is not None
    }
    line = _encoded({"t": t, "event": event, **present}) + "\n"
    return line.encode("utf-8", "replace")  # half a surrogate pair, as of a file name


class Journal:
    """An open journal: append-only and bounded. A full one takes only essential lines.

    ``room``: its size limit in bytes.
    """

    def __init__(self, descriptor: int, file: File, room: int) -> None:
        self._descriptor, self._file, self._room = descriptor, file, room
        self._torn = False

    def append(self, line: bytes, *, essential: bool = False) -> bool:
        """Append a line; whether all of it was written."""
        data = b"\n" * self._torn + line
        if (len(data) > self._room and not essential) or not self._is_there():
            return False
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            pass_on(error)
            written = 0
        self._room -= written
        complete = written == len(data)
        # after a partial write the next line starts with a line break
        self._torn = not complete and (self._torn or written > 0)
        return complete

    def close(self) -> None:
        if self._is_there():
            os.close(self._descriptor)
        self._descriptor = -1

    def _is_there(self) -> bool:
        """Whether the descriptor is still the journal's; once it is not, it never is again."""
        if not leads_to(self._descriptor, self._file):
            self._descriptor = -1
        return self._descriptor >= 0
