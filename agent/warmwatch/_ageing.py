"""A living record, kept from those who remove what looks old.

What a training maps into its memory looks old while it is in use: no store moves the times of a
file on tmpfs, and a record in which nothing rare happens is not written to otherwise. So its folder
is under a BSD lock for as long as it is open: ``systemd-tmpfiles --clean`` passes over such a
folder with all that is in it. That is another kind of lock than the one that says who lives, and on
another file. Nobody waits for it.

Network filesystems may make the two kinds one: there is none there, and nobody ages them so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from warmwatch._descriptors import File, file_of, leads_to, opened_high
from warmwatch._mapping import kind_of

_LOCAL = frozenset(
    ("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"),
)


class Keeping:
    """Keeps the folder at ``path`` until it is released, where that can be."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = -1
        self._folder: File | None = None
        if kind_of(path) in _LOCAL:
            with contextlib.suppress(OSError):  # no descriptor is free: it may be removed
                self._take(path)

    def _take(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = opened_high(path, os.O_RDONLY | os.O_DIRECTORY)
        self._folder = file_of(os.fstat(self._descriptor))
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Let it be removed. A descriptor that has become another file's is left alone."""
        if leads_to(self._descriptor, self._folder):
            os.close(self._descriptor)
        self._descriptor = -1
