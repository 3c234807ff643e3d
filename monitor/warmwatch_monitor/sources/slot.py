"""One slot, read again and again with ``pread``, and the lock that says whether its writer lives.

The file is opened for each look and closed after it: no descriptor outlives the look, so neither
a deleted folder nor five hundred records can hold any up. The lock is asked for *before* the bytes
are read: where it is free, what is read then is the last word of a process that is gone.

The hot words are read before the sealed blocks, by a call of their own: a copy by one call may go
in any order, and the words must never be newer than the blocks (see ``warmwatch.record``).
"""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import dataclass

from warmwatch import record
from warmwatch.record import RecordError, Slot, TornError

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a fifo must not hang us
# A read finds both places of a block half written where the writer stored twice meanwhile: that
# takes a reader that was made to wait in the middle, so the next try is nearly always whole.
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a slot.

    Attributes:
        slot: its numbers; the last good ones where a block stays half written.
        moved: they are others than at the look before.
        held: a process holds the lock. pid: its pid here, ``None`` where this pid namespace
        cannot see it. inode: the file's. modified: its mtime, seconds since the epoch.
    """

    slot: Slot
    moved: bool
    held: bool
    pid: int | None
    inode: int
    modified: float


class SlotFile:
    """A slot's path, with the last image so that what has not changed is not unpacked again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._hot = self._blocks = b""
        self._slot: Slot | None = None
        self._forgotten: int | None = None

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
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
            pid = record.lock_holder(answer)
            slot, moved = self._read(descriptor)
            return Look(
                slot=slot,
                moved=moved,
                held=pid is not None,
                pid=pid or None,
                inode=status.st_ino,
                modified=status.st_mtime,
            )
        finally:
            os.close(descriptor)

    def forget(self) -> None:
        """Keep of the last image no more than what tells another one from it."""
        if self._slot is not None:
            self._forgotten = hash((self._hot, self._blocks))
            self._hot, self._blocks, self._slot = b"", b"", None

    def _read(self, descriptor: int) -> tuple[Slot, bool]:
        """Its numbers, and whether they are others than before."""
        torn: TornError | None = None
        for _ in range(_TRIES):
            hot, blocks = _image(descriptor)
            same = self._slot if blocks == self._blocks else None
            if same is not None and hot == self._hot:
                return same, False
            try:
                slot = record.unpack(hot + blocks, same)
            except TornError as error:
                torn = error
                continue
            _check(slot)
            moved = self._slot is not None or self._forgotten not in (None, hash((hot, blocks)))
            self._hot, self._blocks, self._slot, self._forgotten = hot, blocks, slot, None
            return slot, moved
        if self._slot is None:
            raise torn or RecordError("torn record")
        return self._slot, False


def _image(descriptor: int) -> tuple[bytes, bytes]:
    """The words, and then what is sealed."""
    hot = os.pread(descriptor, record.HOT_END, 0)
    return hot, os.pread(descriptor, record.SIZE - record.HOT_END, record.HOT_END)


def _check(slot: Slot) -> None:
    """Refuse what no agent writes, so that nothing downstream meets it."""
    compile = slot.compile
    if not slot.header.warm_steps:
        raise RecordError("torn record: it asks for no clean steps before it is warm")
    if compile.active_phase > len(record.PHASES) or compile.end_code >= len(record.ENDS):
        raise RecordError("torn record: it holds a phase or an end that no release knows")
