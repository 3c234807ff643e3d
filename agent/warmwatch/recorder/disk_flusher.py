"""A record on a disk: one thread copies the slot from memory to the file.

What a disk does, full, frozen, broken, never reaches the training: one thread does all that could
wait for it, and has nothing that another one waits for, but for a time. Once it runs it does so
until the record is closed, which it does too. A forked child has no such thread and uses nothing
of its parent's: no lock, no descriptor, no line that waits.

What is written keeps the record's promise that words are never newer than the sealed blocks: the
words are taken first and written last. A sealed place is written by itself, the one that is not
the last whole one, so that whatever stops a write leaves the block before.
"""

from __future__ import annotations

import fcntl
import os
from _thread import LockType
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic

from warmwatch.process.descriptors import leads_to
from warmwatch.process.threads import MaskedThread, release, taken
from warmwatch.recorder.files import Files, let_go, reopened
from warmwatch.recorder.journal import Journal
from warmwatch.shared import record
from warmwatch.shared.record.sealed_blocks import following, newest, unseal

INTERVAL = 0.25  # seconds between two copies where nothing rare happens
_GATHER = 0.02  # what happens within so many seconds is copied together
_HOLD = 5.0  # seconds until the lock is looked after where there is nothing to copy
_PAUSES = (1.0, 60.0)  # between two tries to make the files: the first, and the longest
_MOST_LINES = 2000  # that wait for a disk, besides those that are essential
_WORD = 8
# Of the words, in the order in which an agent stores them: ``steps`` after its fellows.
_REGIONS = (
    (record.STEPS_OFFSET + _WORD, _WORD * (len(record.STEPS_INDEX) - 1)),
    (record.RING_OFFSET, _WORD * record.RING),
    (record.STEPS_OFFSET, _WORD),
    (record.CLEAN_BINS_OFFSET, _WORD * record.BINS),
    (record.COMPILE_BINS_OFFSET, _WORD * record.BINS),
)
assert record.STEPS_INDEX["steps"] == 0, "it is the first word"
_BLOCKS = (record.COMPILE_BLOCK, record.IDENTITY_BLOCK)


class DiskFlusher:
    """The files of a record, kept like ``memory``.

    Args:
        memory: the slot, which the training's threads store into.
        make: makes the files; tried again, ever more rarely, while it raises.
        made: told of them, once. failed: told of an error, once until it goes well again.

    Attributes:
        files: the record's, when they are there. problem: why they could not be made.
        dropped: lines of the journal that could not be written.
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
        self._wake, self._urgent, self._over = taken(), taken(), taken()
        self._lines: deque[tuple[bytes, bool]] = deque()
        self._asked: deque[LockType] = deque()
        self._closed = self._fails = False
        self._slot = -1
        self._on_disk = bytearray()
        self._held = self._next_try = 0.0
        self._pause = _PAUSES[0]
        self._journal: Journal | None = None
        self.files: Files | None = None
        self.problem: Exception | None = None
        self.dropped = 0

    # What any thread of the training may call: nothing waits, but what is given a time.

    def start(self) -> bool:
        """Have the thread run; whether it does. Where the process may have no more, the next call
        tries again.
        """
        return not self._closed and self._thread.start()

    def is_own_thread(self) -> bool:
        """Whether it is the copying thread that asks."""
        return self._thread.is_current()

    def wake(self, *, urgent: bool = False) -> bool:
        """Something rare happened: copy it soon, or where it is ``urgent`` at once."""
        started = self.start()
        if urgent:
            release(self._urgent)
        release(self._wake)
        return started

    def add(self, line: bytes, *, essential: bool) -> None:
        """A line for the journal."""
        if len(self._lines) >= _MOST_LINES and not essential:
            self.dropped += 1
            return
        self._lines.append((line, essential))
        self.wake()

    def flush(self, seconds: float) -> bool:
        """Wait until all that is there by now was copied; whether that came within the time."""
        done = taken()
        self._asked.append(done)
        return self.wake(urgent=True) and done.acquire(timeout=seconds)

    def close(self, seconds: float) -> bool:
        """Have the thread copy what there is, let go of the files and of the lock, and end.

        Whether it has within the time; where its disk keeps it, it does so afterwards.
        """
        started = self._thread.start()
        self._closed = True
        self.wake(urgent=True)
        return started and self._over.acquire(timeout=seconds)

    # The thread.

    def _run(self) -> None:
        woken = closing = False
        try:
            while not closing:
                closing = self._closed
                self._round(rare=woken or closing)
                if not closing and (woken := self._wake.acquire(timeout=INTERVAL)):
                    self._urgent.acquire(timeout=_GATHER)
        finally:
            self._let_go()
            release(self._over)

    def _round(self, *, rare: bool) -> None:
        asked = [self._asked.popleft() for _ in range(len(self._asked))]
        try:
            if self.files is None and not self._closed and monotonic() >= self._next_try:
                self._open()
            if self.files is not None:
                self._keep(self.files, rare=rare)
        except Exception as error:  # noqa: BLE001 - a guest: told, and tried again
            if not self._fails:
                self._fails = True
                self._failed(error)
        else:
            self._fails = False
        for done in asked:
            release(done)

    def _open(self) -> None:
        try:
            files = self.files = self._make()
        except Exception as error:  # noqa: BLE001 - told by whoever made it
            self.problem = error
            self._next_try = monotonic() + self._pause
            self._pause = min(2 * self._pause, _PAUSES[1])
            return
        self.problem = None
        self._slot, self._on_disk = files.slot, bytearray(files.image)
        self._journal = Journal(files.journal, files.journaled, files.room)
        self._made(files)

    def _keep(self, files: Files, *, rare: bool) -> None:
        words = bytes(self._memory[: record.HOT_END])
        image = words + bytes(self._memory[record.HOT_END :])  # after the words: never older
        try:
            news = [*self._blocks(image), *self._words(words)]
            if news or rare or monotonic() - self._held > _HOLD:
                self._hold(files)
            for at, data in news:
                self._write(at, data)
        finally:
            self._write_lines()

    def _blocks(self, image: bytes) -> Iterator[tuple[int, bytes]]:
        """What is to be written so that the file's sealed blocks say what those of ``image`` do."""
        for block in _BLOCKS:
            payload = newest(image, block, unseal)
            if payload != newest(bytes(self._on_disk), block, unseal):
                yield following(self._on_disk, block, payload)

    def _words(self, words: bytes) -> Iterator[tuple[int, bytes]]:
        for at, length in _REGIONS:
            if self._on_disk[at : at + length] != words[at : at + length]:
                yield at, words[at : at + length]

    def _write(self, at: int, data: bytes) -> None:
        if os.pwrite(self._slot, data, at) != len(data):
            raise OSError("the record's disk took a part of it only")
        self._on_disk[at : at + len(data)] = data

    def _hold(self, files: Files) -> None:
        """The slot and its lock, as they were: the training may close all descriptors it has."""
        if not leads_to(self._slot, files.own):
            self._slot = -1
            self._slot = reopened(files)
        fcntl.lockf(self._slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(self._slot).st_size != record.SIZE:  # somebody has truncated it
            self._write(0, bytes(self._on_disk))
        self._held = monotonic()

    def _write_lines(self) -> None:
        while self._lines and self._journal:
            line, essential = self._lines.popleft()
            self.dropped += not self._journal.append(line, essential=essential)

    def _let_go(self) -> None:
        if self._journal:
            self._journal.close()
        if self.files:
            let_go(self.files, self._slot)
        self._slot = -1
