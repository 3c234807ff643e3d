"""One slot, read again and again with ``pread``, and the lock that says whether its writer lives.

The file is opened for each look and closed after it: no descriptor outlives the look, so neither
a deleted folder nor five hundred records can hold any up. The lock is asked for *before* the bytes
are read: where it is free, what is read then is the last word of a process that is gone.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from dataclasses import dataclass

from warmwatch import record
from warmwatch.record import RecordError, Slot

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a fifo must not hang us
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a slot.

    Attributes:
        slot: its numbers; the last good ones where a block stays half written.
        alive: a process holds the lock. pid: its pid here, ``None`` where this pid namespace
        cannot see it. modified: the file's mtime, seconds since the epoch.
    """

    slot: Slot
    alive: bool
    pid: int | None
    modified: float


class SlotFile:
    """A slot's path, with the last image so that an unchanged one is not unpacked again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._image = b""
        self._slot: Slot | None = None

    def look(self) -> Look:
        """Read it.

        Raises:
            RecordError: foreign, torn or of another version. OSError: it cannot be opened or read.
        """
        descriptor = os.open(self._path, _FLAGS)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise RecordError("its slot is not a regular file")
            alive, pid = _holder(descriptor)
            return Look(slot=self._read(descriptor), alive=alive, pid=pid, modified=status.st_mtime)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> Slot:
        first = os.pread(descriptor, record.SIZE, 0)
        if self._slot is not None and first == self._image:
            return self._slot
        refused: RecordError | None = None
        for _ in range(_TRIES):
            try:
                image, slot = _unpack(descriptor, first)
            except RecordError as error:  # the identity, too, may be half written just now
                refused = error
                continue
            refused = None
            if slot is not None:
                self._image, self._slot = image, slot
                return slot
        if refused is not None:
            raise refused
        if self._slot is None:
            raise RecordError("torn record: its writer stopped in the middle of a block")
        return self._slot


def _unpack(descriptor: int, first: bytes) -> tuple[bytes, Slot | None]:
    record.check_header(first)
    second = os.pread(descriptor, record.SIZE, 0)
    third = os.pread(descriptor, record.BLOCKS_END, 0)
    if min(len(first), len(third)) < record.BLOCKS_END:
        raise RecordError("torn record: it was cut short while it was read")
    slot = record.unpack([first, second, third])
    if slot is not None:
        _check(slot)
    return second, slot


def _check(slot: Slot) -> None:
    """Refuse what no agent writes, so that nothing downstream meets it."""
    identity, compile = slot.identity, slot.compile
    if not isinstance(identity.run, str) or not identity.run:
        raise RecordError("torn record: its run has no name")
    if isinstance(identity.rank, bool) or not isinstance(identity.rank, int):
        raise RecordError(f"torn record: its rank is {identity.rank!r}, not a number")
    if compile.active_phase > len(record.PHASES) or compile.end_code >= len(record.ENDS):
        raise RecordError("torn record: it holds a phase or an end that no release knows")


def _holder(descriptor: int) -> tuple[bool, int | None]:
    """Whether a process holds the lock, and its pid where this pid namespace has it."""
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    if kind == fcntl.F_UNLCK:
        return False, None
    return True, pid if pid > 0 else None
