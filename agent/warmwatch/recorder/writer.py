"""Writes the record. The other files of this room are parts of the writer.

If the record's directory is on tmpfs, the slot is mapped and journal lines are appended directly:
neither blocks. Otherwise ``buffer`` is plain memory, and a thread copies it to the file
(``disk_flusher``). ``buffer`` is also plain memory before :meth:`Writer.open` and after it failed,
so that ``warmwatch.state()`` works without a record.

Invariants: the folder gets its final name only when it is complete. The descriptor that holds the
lock stays open while the process runs. Closing any descriptor of the slot would free the lock, so
the agent never opens the slot a second time. The training's code may do that, so every rare write
takes the lock again.

Memory order: a store into a sealed block is visible before every hot counter that is stored after
it. x86 guarantees that order; on other processors, releasing and acquiring a lock does.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import threading
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from warmwatch._guard import pass_on, report, warn_once
from warmwatch.process.threads import SerialQueue
from warmwatch.recorder.descriptors import Journal, leads_to, line_of
from warmwatch.recorder.disk_flusher import DiskFlusher
from warmwatch.recorder.files import Files, RecordCreation, close_slot, opened_beside
from warmwatch.recorder.mapping import in_memory, mapped
from warmwatch.recorder.other_records import prune
from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_BLOCK, COMPILE_INDEX, STEPS_INDEX, Header, Identity
from warmwatch.shared.record.sealed_blocks import store

_OPEN_TIMEOUT = 2.0  # seconds that a training waits for a disk, once, when its record is created
_CLOSE_TIMEOUT = 1.0  # seconds that a detach waits for a disk that responded to the last flush
_SINCE, _DROPPED = COMPILE_INDEX["active_since_ns"], COMPILE_INDEX["journal_dropped"]
_WORD = struct.Struct("Q")
_STEPS, _BATCHES, _WAITED = (
    record.STEPS_OFFSET + 8 * STEPS_INDEX[name] for name in ("steps", "batches", "batch_wait_ns")
)


def _warn_of(passed_over: Sequence[tuple[str, OSError]], used: str) -> None:
    """Warn that a better directory exists and could not be used: its readers miss this run."""
    for directory, error in passed_over:
        if os.path.isdir(directory):  # noqa: PTH112 - pathlib's raises where it may not ask
            why = str(error).removeprefix(f"{directory}: ")
            why = error.strerror.lower() if error.strerror else why
            warn_once(
                f"the record is in {used}, because {directory} cannot be used ({why}); a monitor "
                f"that reads {directory} alone does not see this run"
            )


class Writer:
    """One record: opened once, written to until :meth:`close`.

    Args:
        readers: ``owner``, ``group`` or ``all``; ``None``: those of the directory.
        made: called with the record's files once they exist.
    """

    def __init__(
        self, *, readers: str | None = None, made: Callable[[Files], None] | None = None
    ) -> None:
        self.buffer: bytearray | mmap.mmap = record.blank()
        self.identity: Identity | None = None
        self._readers, self._on_made = readers, made
        self._files: Files | None = None
        self._journal: Journal | None = None
        self._flusher: DiskFlusher | None = None
        self._dropped = 0
        self._updated = self._active = self._closed = False
        self._responds = True
        self._identities: deque[tuple[Identity, bool]] = deque()  # and whether it is the first
        self._identity_queue = SerialQueue()
        self._warnings: deque[str] = deque()
        self._fence = threading.Lock()
        self._fence.acquire()

    @property
    def folder(self) -> Path | None:
        """The record's folder; ``None`` if there is none."""
        files = self._open_files
        return files.folder if files else None

    @property
    def _open_files(self) -> Files | None:
        return self._flusher.files if self._flusher else self._files

    def opened(self, name: str, flags: int) -> int | None:
        """A descriptor of another file of the record; ``None`` if there is no record.

        Raises:
            OSError: it cannot be opened.
        """
        files = self._open_files
        return opened_beside(files, name, flags) if files else None

    @property
    def dropped(self) -> int:
        """Number of journal lines that could not be written."""
        return self._dropped + (self._flusher.dropped if self._flusher else 0)

    def open(
        self,
        directories: Sequence[str],
        header: Header,
        identity: Identity,
        *,
        named: bool,
        child: str = "",
    ) -> Identity:
        """Create the record in the first directory that can be written.

        Returns the identity of the record. Its run has a number if the name was not set explicitly
        (``named``) and another launch of the same script runs in that directory. ``child`` is the
        suffix of the name in a child of the run's process.

        Raises:
            OSError: no directory can be written; the error of the last one.
        """
        packed = record.pack_header(header)
        self.buffer[: len(packed)] = packed
        problem: OSError = OSError("no record directory is configured")
        passed_over: list[tuple[str, OSError]] = []
        for directory in directories:
            chosen = len(directories) == 1
            task = RecordCreation(directory, identity, named=named, child=child, chosen=chosen)
            try:
                (self._open_in_memory if in_memory(directory) else self._open_on_disk)(task)
            except OSError as error:
                pass_on(error)
                problem = error
                passed_over.append((directory, error))
            else:
                _warn_of(passed_over, directory)
                return task.identity
        raise problem

    def _open_in_memory(self, task: RecordCreation) -> None:
        files = task.run(self._image, self._readers)
        self.identity = task.identity
        try:
            buffer = mapped(files.slot, record.SIZE)
        except (OSError, ImportError, AttributeError) as error:
            pass_on(error)
            self._flusher = self._new_flusher(lambda: files)
            self._flusher.flush(_OPEN_TIMEOUT)
            return
        self.buffer = buffer
        self._journal = Journal(files.journal, files.journal_file, files.room)
        self._files = files
        self._made(files)

    def _open_on_disk(self, task: RecordCreation) -> None:
        """Create the record on the flusher's thread, and wait for it with a timeout.

        If a signal handler raises meanwhile, the thread continues to create and copy the record.
        """
        self._image(task.plain)
        flusher = self._flusher = self._new_flusher(lambda: self._create(task))
        task.awaited = True
        try:
            if not flusher.start():
                raise OSError(errno.EAGAIN, "the thread that writes it cannot be started")
            responded = flusher.flush(_OPEN_TIMEOUT)
            if problem := flusher.problem:
                raise problem if isinstance(problem, OSError) else OSError(repr(problem))
        except OSError as error:
            pass_on(error)
            self._flusher = None
            flusher.close(0)
            raise
        finally:
            task.awaited = False
            task.decide(task.plain)
            self.identity = task.identity
        if not responded:
            warn_once(
                f"{task.directory} does not answer, so no monitor sees this run until it does; "
                "set WARMWATCH_DIR to a directory in memory, such as one in /dev/shm"
            )

    def _create(self, task: RecordCreation) -> Files:
        """Create the files, on the flusher's thread; warn about the first error after the wait."""
        try:
            return task.run(self._image, self._readers)
        except Exception as error:
            if not task.awaited and (self._flusher is None or self._flusher.problem is None):
                self._warnings.append(f"the record cannot be written now ({error}); will retry")
            raise

    def _made(self, files: Files) -> None:
        """Report the new files to ``made``, and remove old records."""
        try:
            if self._on_made and not self._closed:
                self._on_made(files)
            prune(files.folder.parent, own=files.slot_file)
        except OSError as error:  # another process may prune at the same time
            pass_on(error)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("record", error)

    def _image(self, identity: Identity) -> bytes:
        """The slot with this identity, or a later one if it has been set meanwhile.

        Raises:
            OSError: the identity is too long.
        """
        try:
            self._identities.append((identity, True))
            self._identity_queue.post(self._store_identities)
        except record.RecordError as error:
            raise OSError(errno.EINVAL, str(error)) from error
        return bytes(self.buffer)

    def _new_flusher(self, make: Callable[[], Files]) -> DiskFlusher:
        assert isinstance(self.buffer, bytearray)
        return DiskFlusher(self.buffer, make, made=self._made, failed=self._failed)

    def _failed(self, error: Exception) -> None:
        report("record", error)
        self._warnings.append(
            f"the record of this run cannot be written now ({error}), so monitors see an old "
            "state; the training continues, and the write is retried"
        )

    def _warn(self) -> None:
        """Issue the flusher's warnings on a thread of the training, so that they show its line."""
        if self._flusher and not self._flusher.is_own_thread():
            while self._warnings:
                warn_once(self._warnings.popleft())

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal; one that cannot be written is counted in ``dropped``."""
        if self._flusher:
            self._flusher.add(line_of(event, t, values), essential=essential)
        elif self._journal:
            self._renew_lock()
            line = line_of(event, t, values)
            self._dropped += not self._journal.append(line, essential=essential)

    def publish(self, counters: array[int], *, renew_lock: bool = True) -> None:
        """Seal the compile block into the slot. One caller at a time.

        ``renew_lock``: a line of the journal does that too.
        """
        flusher = self._flusher
        counters[_DROPPED] = self._dropped + (flusher.dropped if flusher else 0)
        store(self.buffer, COMPILE_BLOCK, counters.tobytes())  # directly: at every change of phase
        self._fence.acquire(blocking=False)  # already held, unless a signal handler raised here
        self._fence.release()
        self._fence.acquire(blocking=False)
        if self._identities:  # a signal handler raised while they were stored
            self._identity_queue.post(self._store_identities)
        active = counters[_SINCE] != 0
        begins, self._active = active and not self._active, active
        if renew_lock or flusher:
            self._renew_lock(urgent=begins)

    def steps(self) -> int:
        """Steps marked so far."""
        return int(_WORD.unpack_from(self.buffer, _STEPS)[0])

    def batches(self) -> int:
        """Batches that DataLoaders returned so far."""
        return int(_WORD.unpack_from(self.buffer, _BATCHES)[0])

    def waited_ns(self) -> int:
        """Time spent waiting for them so far."""
        return int(_WORD.unpack_from(self.buffer, _WAITED)[0])

    def set_identity(self, identity: Identity) -> None:
        """Replace the identity in the slot.

        Safe on any thread: if another thread is storing one, it stores this one too.
        """
        self._updated = True
        self._identities.append((identity, False))
        self._identity_queue.post(self._store_identities)
        self._renew_lock()

    def _store_identities(self) -> None:
        while self._identities:  # each stays queued until stored: a signal handler may raise
            identity, first = self._identities[0]
            try:
                if not (first and self._updated):
                    record.store_identity(self.buffer, identity)
            except record.RecordError:
                self._identities.popleft()  # it never fits
                raise
            self._identities.popleft()

    def _renew_lock(self, *, urgent: bool = False) -> None:
        """Take the lock again, in case the process has closed a descriptor of the slot.

        Cheap, and never waits. A descriptor that now belongs to another file is left alone. With
        a disk flusher, its thread does this and copies the slot: soon, or immediately if
        ``urgent``.
        """
        if self._flusher:
            self._flusher.wake(urgent=urgent)
            self._warn()
        elif self._files and leads_to(self._files.slot, self._files.slot_file):
            try:
                fcntl.lockf(self._files.slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                pass_on(error)

    def flush(self, seconds: float) -> bool:
        """Write everything to the disk; whether that took less than ``seconds``."""
        self._responds = self._flusher.flush(seconds) if self._flusher else True
        self._warn()
        return self._responds

    def close(self) -> None:
        """Close the files, which releases the lock."""
        self._closed = True
        self.buffer = bytearray(self.buffer)
        if self._flusher:
            self._flusher.close(_CLOSE_TIMEOUT if self._responds else 0)
            return
        if self._journal:
            self._journal.close()
        if self._files:
            close_slot(self._files, self._files.slot)
        self._files = self._journal = None
