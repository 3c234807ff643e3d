"""File descriptors that survive ``closefrom`` and are never confused with the program's own.

So ours are moved to high numbers, which the system gives to no other file soon after, and looked at
before anything is done with them: one that has become another file's is left alone.
"""

from __future__ import annotations

import fcntl
import os

from warmwatch._guard import pass_on

File = tuple[int, int]  # device and inode
_HIGH = (1000, 200, 3)  # least numbers to try, since a process may be allowed fewer descriptors
_GET_FLAGS, _SET_FLAGS, _NO_COPY_ON_WRITE = 0x80086601, 0x40086602, 0x00800000


def file_of(status: os.stat_result) -> File:
    """Which file a status is of."""
    return status.st_dev, status.st_ino


def leads_to(descriptor: int, file: File | None) -> bool:
    """Whether a descriptor is still that of ``file``."""
    try:
        return descriptor >= 0 and file_of(os.fstat(descriptor)) == file
    except OSError as error:
        pass_on(error)
        return False


def high_copy(descriptor: int) -> int:
    """Another descriptor of the same file, with a high number.

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


def opened_high(path: str | os.PathLike[str], flags: int, mode: int = 0) -> int:
    """A file opened under a high number. Not for one whose lock is held: the low one is closed."""
    low = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        return high_copy(low)
    finally:
        os.close(low)


def overwrite_in_place(file: int) -> None:
    """On btrfs: where each store goes to a new block, allocated ones are of no use."""
    flags = bytearray(8)
    try:
        fcntl.ioctl(file, _GET_FLAGS, flags)
        wanted = int.from_bytes(flags, "little") | _NO_COPY_ON_WRITE
        fcntl.ioctl(file, _SET_FLAGS, wanted.to_bytes(8, "little"))
    except OSError as error:  # other filesystems know no such flag, and need none
        pass_on(error)
