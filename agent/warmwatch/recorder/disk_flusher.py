"""Disk flusher: for a record on a disk, one thread copies the slot from memory to the file.

A full, frozen or broken disk never reaches the training. Only this thread waits for the disk, and
other threads wait for it only with a timeout. It runs until the record is closed, and closes it. A
forked child has no such thread and uses nothing of its parent's: no lock, descriptor or queued
line.

The copy preserves the record's invariant that counters are never newer than the sealed blocks:
counters are read first and written last. Of a sealed block's two places, the flusher overwrites
the older one, so an interrupted write leaves the previous block intact.
"""

from __future__ import annotations

import fcntl
import os
from _thread import LockType
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic

from warmwatch.process.threads import MaskedThread, locked, release
from warmwatch.recorder.descriptors import Journal, leads_to
from warmwatch.recorder.files import Files, close_slot, reopened
from warmwatch.shared import record
from warmwatch.shared.record.sealed_blocks import following, newest, unseal

INTERVAL = 0.25  # seconds between two copies without a rare event
_BATCH = 0.02  # seconds: events within this time are copied together
_LOCK_INTERVAL = 5.0  # seconds between two renewals of the lock if nothing is to copy
_RETRIES = (1.0, 60.0)  # seconds between two attempts to create the files: first and longest
_MOST_LINES = 2000  # queued lines, not counting essential ones
_WORD = 8
# Regions of the counters, in the order in which the agent stores them: ``steps`` last in its block.
_REGIONS = (
    (record.STEPS_OFFSET + _WORD, _WORD * (len(record.STEPS_INDEX) - 1)),
    (record.RING_OFFSET, _WORD * record.RING),
    (record.STEPS_OFFSET, _WORD),
    (record.CLEAN_BINS_OFFSET, _WORD * record.BINS),
    (record.COMPILE_BINS_OFFSET, _WORD * record.BINS),
)
assert record.STEPS_INDEX["steps"] == 0, "steps is the first counter"
_BLOCKS = (record.COMPILE_BLOCK, record.IDENTITY_BLOCK)


class DiskFlusher:
    """Keeps the files of a record equal to ``memory``.

    Args:
        memory: the slot, which the training's threads write to.
        make: creates the files; retried with backoff while it raises.
        made: called once with the files.
        failed: called with the first error, and again only after a success.

    Attributes:
        files: files of the record, once created. problem: why they could not be created.
        dropped: number of journal lines that could not be written.
    """

    def __init__(
        self,
        memory: bytearray,
        make: Callable[[], Files],
        *,
        made: Callable[[Files], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._memory, self._make, self._made, self._failed = memory, make, made, failed
        self._thread = MaskedThread(self._run)
        self._wake, self._urgent, self._ended = locked(), locked(), locked()
        self._lines: deque[tuple[bytes, bool]] = deque()
        self._flushes: deque[LockType] = deque()
        self._closed = self._failing = False
        self._slot = -1
        self._on_disk = bytearray()
        self._locked_at = self._next_attempt = 0.0
        self._retry = _RETRIES[0]
        self._journal: Journal | None = None
        self.files: Files | None = None
        self.problem: Exception | None = None
        self.dropped = 0

    # Any thread of the training may call these. Only those with a timeout wait.

    def start(self) -> bool:
        """Start the thread; whether it runs. If the system refuses it, the next call retries."""
        return not self._closed and self._thread.start()

    def is_own_thread(self) -> bool:
        """Whether the caller is the copying thread."""
        return self._thread.is_current()

    def wake(self, *, urgent: bool = False) -> bool:
        """Copy soon, or immediately if ``urgent``; whether the thread runs."""
        started = self.start()
        if urgent:
            release(self._urgent)
        release(self._wake)
        return started

    def add(self, line: bytes, *, essential: bool) -> None:
        """Queue a line for the journal."""
        if len(self._lines) >= _MOST_LINES and not essential:
            self.dropped += 1
            return
        self._lines.append((line, essential))
        self.wake()

    def flush(self, seconds: float) -> bool:
        """Wait until everything so far is copied; whether that took less than ``seconds``."""
        done = locked()
        self._flushes.append(done)
        return self.wake(urgent=True) and done.acquire(timeout=seconds)

    def close(self, seconds: float) -> bool:
        """Copy the rest, close the files, release the lock and end the thread.

        Whether that took less than ``seconds``. If the disk blocks, the thread finishes later.
        """
        started = self._thread.start()
        self._closed = True
        self.wake(urgent=True)
        return started and self._ended.acquire(timeout=seconds)

    # The thread.

    def _run(self) -> None:
        woken = closing = False
        try:
            while not closing:
                closing = self._closed
                self._run_once(rare=woken or closing)
                if not closing and (woken := self._wake.acquire(timeout=INTERVAL)):
                    self._urgent.acquire(timeout=_BATCH)
        finally:
            self._close_files()
            release(self._ended)

    def _run_once(self, *, rare: bool) -> None:
        flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
        try:
            if self.files is None and not self._closed and monotonic() >= self._next_attempt:
                self._open()
            if self.files is not None:
                self._copy(self.files, rare=rare)
        except Exception as error:  # noqa: BLE001 - a guest: reported, and retried
            if not self._failing:
                self._failing = True
                self._failed(error)
        else:
            self._failing = False
        for done in flushes:
            release(done)

    def _open(self) -> None:
        try:
            files = self.files = self._make()
        except Exception as error:  # noqa: BLE001 - reported by ``make``
            self.problem = error
            self._next_attempt = monotonic() + self._retry
            self._retry = min(2 * self._retry, _RETRIES[1])
            return
        self.problem = None
        self._slot, self._on_disk = files.slot, bytearray(files.image)
        self._journal = Journal(files.journal, files.journal_file, files.room)
        self._made(files)

    def _copy(self, files: Files, *, rare: bool) -> None:
        counters = bytes(self._memory[: record.HOT_END])
        image = counters + bytes(self._memory[record.HOT_END :])  # read second: never older
        try:
            changes = [*self._changed_blocks(image), *self._changed_counters(counters)]
            if changes or rare or monotonic() - self._locked_at > _LOCK_INTERVAL:
                self._renew_lock(files)
            for at, data in changes:
                self._write(at, data)
        finally:
            self._write_lines()

    def _changed_blocks(self, image: bytes) -> Iterator[tuple[int, bytes]]:
        """Writes (offset and data) that make the file's sealed blocks equal to ``image``'s."""
        for block in _BLOCKS:
            payload = newest(image, block, unseal)
            if payload != newest(bytes(self._on_disk), block, unseal):
                yield following(self._on_disk, block, payload)

    def _changed_counters(self, counters: bytes) -> Iterator[tuple[int, bytes]]:
        for at, length in _REGIONS:
            if self._on_disk[at : at + length] != counters[at : at + length]:
                yield at, counters[at : at + length]

    def _write(self, at: int, data: bytes) -> None:
        if os.pwrite(self._slot, data, at) != len(data):
            raise OSError("short write to the record's disk")
        self._on_disk[at : at + len(data)] = data

    def _renew_lock(self, files: Files) -> None:
        """Reopen and lock the slot if the training's code closed the descriptor."""
        if not leads_to(self._slot, files.slot_file):
            self._slot = -1
            self._slot = reopened(files)
        fcntl.lockf(self._slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(self._slot).st_size != record.SIZE:  # truncated by another program
            self._write(0, bytes(self._on_disk))
        self._locked_at = monotonic()

    def _write_lines(self) -> None:
        while self._lines and self._journal:
            line, essential = self._lines.popleft()
            self.dropped += not self._journal.append(line, essential=essential)

    def _close_files(self) -> None:
        if self._journal:
            self._journal.close()
        if self.files:
            close_slot(self.files, self._slot)
        self._slot = -1
