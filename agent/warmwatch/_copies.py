"""A record on a disk: its slot is memory, which is copied to the file a few times a second.

What a disk does, full, frozen, broken, never reaches the training: one thread does all that could
wait for it, and has nothing that another one waits for. It is none of ``threading``'s, so whoever
joins all threads does not wait for it, and takes no signals, so the training's come where they
came before. It is not there while the process forks: a child inherits nothing half done.

What is written keeps the record's promise that words are never newer than the sealed blocks: the
words are taken first and written last. A sealed place is written by itself, the one that is not
the last whole one, so that whatever stops a write leaves the block before.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
from _thread import LockType, allocate_lock, get_native_id, start_new_thread
from collections import deque
from collections.abc import Callable
from time import monotonic, sleep

from warmwatch import record
from warmwatch._descriptors import file_of, leads_to, opened_high
from warmwatch._guard import report
from warmwatch._journal import Journal
from warmwatch._record_files import Files
from warmwatch.record.seal import following, newest, unseal

INTERVAL = 0.25  # seconds between two copies where nothing rare happens
_GATHER = 0.02  # what happens within so many seconds is copied together
_MOST_LINES = 2000  # that wait for a disk
_STUCK = 0.05  # a copy takes a hundredth of it; one that takes longer is waiting for its disk
_REGIONS = (  # of the words, in the order in which an agent stores them
    (record.STEPS_OFFSET, 8 * len(record.STEPS_INDEX)),
    (record.CLEAN_BINS_OFFSET, 8 * record.BINS),
    (record.COMPILE_BINS_OFFSET, 8 * record.BINS),
)
_BLOCKS = (record.COMPILE_BLOCK, record.IDENTITY_BLOCK)


class _Worker:
    """A thread that is at it, from its start to its end."""

    def __init__(self) -> None:
        self.over, self.stop, self.thread = taken(), False, 0


class Copies:
    """The files of a record, kept like ``memory``.

    Args:
        memory: the slot, which the training's threads store into.
        make: makes the files. failed: told of an OSError, once until it goes well again.
    """

    def __init__(
        self,
        memory: bytearray,
        make: Callable[[], Files],
        failed: Callable[[OSError], None],
    ) -> None:
        self._memory, self._make, self._failed = memory, make, failed
        self._workers: dict[None, _Worker] = {}
        self._wake, self._urgent = taken(), taken()
        self._lines: deque[tuple[bytes, bool]] = deque()
        self._waiting: deque[LockType] = deque()
        self._slot = -1
        self._on_disk = bytearray()
        self._began = 0.0
        self._fails = False
        self._journal: Journal | None = None
        self.files: Files | None = None
        self.problem: OSError | None = None
        self.dropped = 0

    # What any thread of the training may call: nothing waits, but what is given a time.

    def start(self) -> bool:
        """Have the thread run; whether it does. Where the process may have no more, the next call
        tries again.
        """
        if self._workers or self.problem:
            return True
        worker = _Worker()
        if self._workers.setdefault(None, worker) is worker:
            try:
                _start_deaf(lambda: self._run(worker))
            except RuntimeError:
                self._workers.clear()
        return bool(self._workers)

    def wake(self) -> None:
        """Something rare happened: copy it soon."""
        self.start()
        release(self._wake)

    def add(self, line: bytes, *, essential: bool) -> None:
        """A line for the journal."""
        if len(self._lines) >= _MOST_LINES:
            self.dropped += 1
            return
        self._lines.append((line, essential))
        self.wake()

    def settle(self, seconds: float) -> bool:
        """Wait until all that is there by now was copied; whether that came within the time."""
        done = taken()
        self._waiting.append(done)
        self.wake()
        release(self._urgent)
        return done.acquire(timeout=seconds)

    def pause(self) -> None:
        """Have the thread end, unless its disk keeps it. ``start`` has another one go on."""
        worker = self._workers.get(None)
        if worker is None or self._is_stuck():
            return
        worker.stop = True
        release(self._wake)
        release(self._urgent)
        if not worker.over.acquire(timeout=_STUCK):
            worker.stop = False
            return
        for _ in range(100):  # it has let go of everything: the kernel needs a moment more
            if not os.path.exists(f"/proc/self/task/{worker.thread}"):  # noqa: PTH110 - fast
                break
            sleep(0.0001)

    def close(self) -> None:
        """End, and let go of the files, and with the slot's descriptor of the lock."""
        self.pause()
        if self._journal:
            self._journal.close()
        if self.files and leads_to(self._slot, self.files.own):
            os.close(self._slot)
        if self.files:
            self.files.keeping.release()
        self._slot = -1

    # The thread.

    def _is_stuck(self) -> bool:
        return bool(self._began) and monotonic() - self._began > _STUCK

    def _run(self, worker: _Worker) -> None:
        worker.thread = get_native_id()
        try:
            while not worker.stop and self.problem is None:
                self._began = monotonic()
                self._round()
                self._began = 0.0
                if self._wake.acquire(timeout=INTERVAL):
                    self._urgent.acquire(timeout=_GATHER)
        except Exception as error:  # noqa: BLE001 - a guest: counted, and the next call starts anew
            report("copy", error)
        finally:
            self._began = 0.0
            self._workers.clear()
            worker.over.release()

    def _round(self) -> None:
        asked = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            if self.files is None:
                self._open()
            self._copy()
            self._fails = False
        except OSError as error:
            if not self._fails and self.problem is None:
                self._fails = True
                self._failed(error)
        self._write_lines()
        for done in asked:
            done.release()

    def _open(self) -> None:
        try:
            files = self._make()
        except OSError as error:
            self.problem = error
            raise
        self._slot, self._on_disk = files.slot, bytearray(os.pread(files.slot, record.SIZE, 0))
        self._journal = Journal(files.journal, files.journaled, files.room)
        self.files = files

    def _copy(self) -> None:
        self._hold()
        words = bytes(self._memory[: record.HOT_END])
        image = words + bytes(self._memory[record.HOT_END :])  # after the words: never older
        for block in _BLOCKS:
            payload = newest(image, block, unseal)
            if payload != newest(bytes(self._on_disk), block, unseal):
                self._write(*following(self._on_disk, block, payload))
        for at, length in _REGIONS:
            if self._on_disk[at : at + length] != words[at : at + length]:
                self._write(at, words[at : at + length])

    def _write(self, at: int, data: bytes) -> None:
        if os.pwrite(self._slot, data, at) != len(data):
            raise OSError("the record's disk took a part of it only")
        self._on_disk[at : at + len(data)] = data

    def _hold(self) -> None:
        """The slot and its lock, as they were: the training may close all descriptors it has."""
        assert self.files
        if not leads_to(self._slot, self.files.own):
            self._slot = -1
            self._slot = _reopened(self.files)
        fcntl.lockf(self._slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(self._slot).st_size != record.SIZE:  # somebody has truncated it
            self._write(0, bytes(self._on_disk))

    def _write_lines(self) -> None:
        while self._lines and self._journal:
            line, essential = self._lines.popleft()
            self.dropped += not self._journal.append(line, essential=essential)


def taken() -> LockType:
    """A lock that is taken: who wants it waits until another thread lets it go."""
    lock = allocate_lock()
    lock.acquire()
    return lock


def release(lock: LockType) -> None:
    """Let it go, where it is taken. It never waits, and may interrupt itself."""
    with contextlib.suppress(RuntimeError):
        lock.release()


def _start_deaf(run: Callable[[], None]) -> None:
    """Start a thread that no signal is delivered to.

    A handler may raise in each call of these, and the training's mask is what it was all the same.

    Raises:
        RuntimeError: the process may have no more threads.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        start_new_thread(run, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reopened(files: Files) -> int:
    """The slot's descriptor anew, where the process has closed the one there was.

    There is no other one then, whose lock closing this one could free.

    Raises:
        OSError: it is not there any more, or not what it was.
    """
    slot = files.folder / record.SLOT
    status = slot.lstat()
    if not stat.S_ISREG(status.st_mode) or file_of(status) != files.own:
        raise FileNotFoundError(f"{slot} is another file")
    slot.chmod(stat.S_IMODE(status.st_mode) | stat.S_IWUSR)  # it is for nobody to write
    try:
        return opened_high(slot, os.O_RDWR | os.O_NONBLOCK)
    finally:
        slot.chmod(stat.S_IMODE(status.st_mode))
