"""Reads one slot repeatedly with ``pread``, and the lock that shows whether its writer lives.

The file is opened for each poll and closed after it: no descriptor outlives the poll, so a deleted
folder or five hundred records hold none. The lock is checked *before* the bytes are read: if it is
free, the bytes are the final ones of a process that is gone.

The hot words are read before the sealed blocks, by a call of their own. A single copy may go in any
order, and the words must never be newer than the blocks (see ``warmwatch.shared.record``).
"""

from __future__ import annotations

import fcntl
import os

from msgspec import Struct

from warmwatch.shared import record
from warmwatch.shared.record import CompileCounts, Header, RecordError, Slot, StepCounts, TornError
from warmwatch.shared.record.counters import flatten
from warmwatch_monitor.sources.records.folder import Folder

# A read finds both places of a block half written only if the writer stored twice during the read.
# That takes a reader that was delayed in the middle, so the next try is nearly always complete.
_TRIES = 20
_LARGEST_EPOCH = 2**62  # nanoseconds since 1970, in the year 2116
_LARGEST = 2**59  # nanoseconds of uptime, or steps: both take decades


class Look(Struct, frozen=True, kw_only=True):
    """One poll of a slot.

    Attributes:
        slot: its numbers; the last good ones if a block stays half written.
        moved: they differ from the previous poll.
        held: a process holds the lock. pid: its pid here, ``None`` if this pid namespace cannot
            see it. inode: the file's. owner: the uid of its owner.
        modified: its mtime, seconds since the epoch.
    """

    slot: Slot
    moved: bool
    held: bool
    pid: int | None
    inode: int
    owner: int
    modified: float


class SlotFile:
    """One slot, with its last image so that unchanged parts are not unpacked again."""

    def __init__(self) -> None:
        self._hot = self._blocks = b""
        self._slot: Slot | None = None
        self._forgotten: int | None = None

    def look(self, folder: Folder) -> Look:
        """Read it.

        Raises:
            RecordError: foreign, torn, of another version, or with another owner than the folder.
            OSError: it cannot be opened or read.
        """
        descriptor, status = folder.open(record.SLOT)
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
            pid = record.lock_holder(answer)
            slot, moved = self._read(descriptor)
            return Look(
                slot=slot,
                moved=moved,
                held=pid is not None,
                pid=pid or None,
                inode=status.st_ino,
                owner=status.st_uid,
                modified=status.st_mtime,
            )
        finally:
            os.close(descriptor)

    @property
    def size(self) -> int:
        """The bytes of the last image; 0 if there is none."""
        return len(self._hot) + len(self._blocks)

    def forget(self) -> None:
        """Forget the last image, except for what detects a change."""
        if self._slot is not None:
            self._forgotten = hash((self._hot, self._blocks))
            self._hot, self._blocks, self._slot = b"", b"", None

    def is_as_forgotten(self, folder: Folder) -> bool:
        """Whether a forgotten slot has not changed, and no process holds its lock.

        Costs a fifth of :meth:`look`, because nothing is unpacked. Raises as :meth:`look`.
        """
        descriptor, _ = folder.open(record.SLOT)
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
            if record.lock_holder(answer) is not None:
                return False
            return self._forgotten == hash(_image(descriptor))
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> tuple[Slot, bool]:
        """Its numbers, and whether they changed."""
        torn: TornError | None = None
        for _ in range(_TRIES):
            hot, blocks = _image(descriptor)
            same = self._slot if blocks == self._blocks else None
            if same is not None and hot == self._hot:
                return same, False
            bins = self._compile_bins(hot)
            try:
                slot = record.with_known_codes(record.unpack(hot + blocks, same, bins))
            except TornError as error:
                torn = error
                continue
            _check(slot, self._slot)
            moved = self._slot is not None or self._forgotten not in (None, hash((hot, blocks)))
            self._hot, self._blocks, self._slot, self._forgotten = hot, blocks, slot, None
            return slot, moved
        if self._slot is None:
            raise torn or RecordError("torn record")
        return self._slot, False

    def _compile_bins(self, hot: bytes) -> tuple[int, ...] | None:
        """The rarely changing histogram, if ``hot`` has the same one as the last image."""
        at = record.COMPILE_BINS_OFFSET
        if self._slot is None or hot[at:] != self._hot[at:]:
            return None
        return self._slot.compile_bins


def _image(descriptor: int) -> tuple[bytes, bytes]:
    """The hot words, and then the sealed blocks."""
    hot = os.pread(descriptor, record.HOT_END, 0)
    return hot, os.pread(descriptor, record.size_of(hot) - record.HOT_END, record.HOT_END)


def _check(slot: Slot, before: Slot | None) -> None:
    """Reject values that no agent writes, before other code sees them.

    Args:
        before: the last good one; equal values were checked then.
    """
    compile = slot.compile
    if before is None or compile is not before.compile or slot.header != before.header:
        header = slot.header._replace(attached_epoch_ns=0)
        sane = slot.header.attached_epoch_ns < _LARGEST_EPOCH
        # an agent leaves these two at the largest word instead of overflowing
        counts = compile._replace(tokens_before=0, samples_before=0)
        _check_numbers(sane and _largest(header) < _LARGEST, "header's")
        _check_numbers(_largest(counts) < _LARGEST, "compile block's")
    _check_numbers(_largest(slot.steps) < _LARGEST, "steps'")
    if not slot.header.warm_steps:
        raise RecordError("torn record: it asks for no clean steps before it is warm")
    codes = (
        (compile.active_phase, 1 + len(record.PHASES)),
        (compile.end_code, len(record.ENDS)),
        (compile.disabled, len(record.DISABLED)),
        (compile.progress_of, 1 + len(record.PROGRESS)),
        (compile.settled_by, len(record.SETTLED_BY)),
    )
    if any(code >= known for code, known in codes):
        raise RecordError("torn record: it holds a phase or an end that no release writes")


def _largest(block: Header | CompileCounts | StepCounts) -> int:
    return max(flatten(block))


def _check_numbers(sane: bool, whose: str) -> None:
    if not sane:
        raise RecordError(f"torn record: one of its {whose} numbers is one that nothing counts to")
