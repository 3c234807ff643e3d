"""Writes the record. All other files of this room are parts of the writer.

Where the record's directory is in memory the slot is mapped, and lines are appended at once: that
never waits. Elsewhere ``buffer`` is plain memory and a thread copies it (``_copies``). Until
:meth:`Writer.open` succeeds, and after it failed, it is plain memory too: the agent works all the
same, so ``warmwatch.state()`` answers where no record can be written.

Invariants: the folder appears under its name only when it is whole; the descriptor that holds the
lock is never closed while the process speaks, nor is the slot opened a second time by us while it
is open (closing any descriptor of it would free the lock). The training's own code may do that, so
the lock is taken again whenever something rare is written.

Order: a store into a sealed block is seen before every hot word that is stored after it. x86 keeps
that order by itself; elsewhere a lock that is let go and taken makes it so.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from warmwatch._guard import pass_on, report, warn_once
from warmwatch.process.descriptors import leads_to
from warmwatch.process.threads import SerialQueue
from warmwatch.recorder.disk_flusher import DiskFlusher
from warmwatch.recorder.files import Files, Making, let_go
from warmwatch.recorder.journal import Journal, line_of
from warmwatch.recorder.mapping import in_memory, mapped
from warmwatch.recorder.neighbours import prune
from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX, Header, Identity

_PATIENCE = 2.0  # seconds that a training waits for a disk once, when its record is made
_CLOSING = 1.0  # seconds that a detach waits for one that has just answered
_SINCE = COMPILE_INDEX["active_since_ns"]


class Writer:
    """One record: opened once, written to until :meth:`close`.

    Args:
        who: may read it (``owner``, ``group``, ``all``); ``None`` for what its directory says.
        made: told of the record's folder when it is there, and the mode of files in it.
    """

    def __init__(
        self, *, who: str | None = None, made: Callable[[Path, int], None] | None = None
    ) -> None:
        self.buffer: bytearray | mmap.mmap = record.blank()
        self.identity: Identity | None = None
        self._who, self._tell = who, made
        self._files: Files | None = None
        self._journal: Journal | None = None
        self._copies: DiskFlusher | None = None
        self._dropped = 0
        self._renamed = self._active = self._closed = False
        self._answers = True
        self._names: deque[tuple[Identity, bool]] = deque()
        self._naming = SerialQueue()
        self._unsaid: deque[str] = deque()
        self._fence = threading.Lock()
        self._fence.acquire()

    @property
    def folder(self) -> Path | None:
        """The record's folder; ``None`` where there is none, or none yet."""
        files = self._copies.files if self._copies else self._files
        return files.folder if files else None

    @property
    def place(self) -> tuple[Path, int] | None:
        """The same, and the mode of the files in it."""
        files = self._copies.files if self._copies else self._files
        return (files.folder, files.mode) if files else None

    @property
    def dropped(self) -> int:
        """Lines of the journal that could not be written."""
        return self._dropped + (self._copies.dropped if self._copies else 0)

    def open(
        self,
        directories: Sequence[str],
        header: Header,
        identity: Identity,
        *,
        named: bool,
        child: str = "",
    ) -> Identity:
        """Make the record in the first directory that can be written.

        Returns the identity it carries: where nobody ``named`` the run and another launch of the
        same script is alive in that directory, the name has a number. ``child`` ends the name
        where this is a child of the run's process.

        Raises:
            OSError: none of them can be; the error of the last one.
        """
        packed = record.pack_header(header)
        self.buffer[: len(packed)] = packed
        problem: OSError = OSError("no record directory is configured")
        for directory in directories:
            chosen = len(directories) == 1
            task = Making(directory, identity, named=named, child=child, chosen=chosen)
            try:
                (self._open_in_memory if in_memory(directory) else self._open_on_disk)(task)
            except OSError as error:
                pass_on(error)
                problem = error
            else:
                return task.identity
        raise problem

    def _open_in_memory(self, task: Making) -> None:
        files = task.run(self._image, self._who)
        self.identity = task.identity
        try:
            buffer = mapped(files.slot, record.SIZE)
        except (OSError, ImportError, AttributeError) as error:
            pass_on(error)
            self._copies = self._copied(lambda: files)
            self._copies.flush(_PATIENCE)
            return
        self.buffer = buffer
        self._journal = Journal(files.journal, files.journaled, files.room)
        self._files = files
        self._made(files)

    def _open_on_disk(self, task: Making) -> None:
        """Have the thread make it, and wait for that, but not for a disk that does not answer.

        Whatever a signal handler raises meanwhile: the thread goes on, and so does what it copies.
        """
        self._image(task.plain)
        copies = self._copies = self._copied(lambda: self._late(task))
        task.awaited = True
        try:
            if not copies.start():
                raise OSError(errno.EAGAIN, "no thread can be started that writes it")
            answered = copies.flush(_PATIENCE)
            if problem := copies.problem:
                raise problem if isinstance(problem, OSError) else OSError(repr(problem))
        except OSError as error:
            pass_on(error)
            self._copies = None
            copies.close(0)
            raise
        finally:
            task.awaited = False
            task.decide(task.plain)
            self.identity = task.identity
        if not answered:
            warn_once(
                f"{task.directory} does not answer, so no monitor sees this run until it does; "
                "set WARMWATCH_DIR to a directory in memory, such as one in /dev/shm"
            )

    def _late(self, task: Making) -> Files:
        """The files, made on the thread. What fails when nobody waits for it any more is said."""
        try:
            return task.run(self._image, self._who)
        except Exception as error:
            if not task.awaited and (self._copies is None or self._copies.problem is None):
                self._unsaid.append(f"no record can be written now ({error}); it is tried again")
            raise

    def _made(self, files: Files) -> None:
        """The files are there: what comes with them, and the housekeeping."""
        try:
            if self._tell and not self._closed:
                self._tell(files.folder, files.mode)
            prune(files.folder.parent, own=files.own)
        except OSError as error:  # another process may be at it too
            pass_on(error)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("record", error)

    def _image(self, identity: Identity) -> bytes:
        """The slot with this identity, unless it has been given a later one meanwhile.

        Raises:
            OSError: it is too long.
        """
        try:
            self._names.append((identity, True))
            self._naming.post(self._store_names)
        except record.RecordError as error:
            raise OSError(errno.EINVAL, str(error)) from error
        return bytes(self.buffer)

    def _copied(self, make: Callable[[], Files]) -> DiskFlusher:
        assert isinstance(self.buffer, bytearray)
        return DiskFlusher(self.buffer, make, made=self._made, failed=self._failed)

    def _failed(self, error: Exception) -> None:
        report("record", error)
        self._unsaid.append(
            f"the record of this run cannot be written now ({error}), so a monitor sees what was "
            "before; the training goes on, and it is tried again"
        )

    def _say(self) -> None:
        """What the thread had to say, on one of the training's, at whose line it is shown."""
        if self._copies and not self._copies.is_own_thread():
            while self._unsaid:
                warn_once(self._unsaid.popleft())

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal; one that cannot be written is counted in ``dropped``."""
        if self._copies:
            self._copies.add(line_of(event, t, values), essential=essential)
        elif self._journal:
            self.hold()
            line = line_of(event, t, values)
            self._dropped += not self._journal.append(line, essential=essential)

    def publish(self, words: list[int]) -> None:
        """Seal the words of the compile block into the slot. One caller at a time."""
        words[record.COMPILE_INDEX["journal_dropped"]] = self.dropped
        record.store_compile(self.buffer, words)
        self._fence.acquire(blocking=False)  # it is, unless a signal handler raised in the middle
        self._fence.release()
        self._fence.acquire(blocking=False)
        if self._names:  # a signal handler raised while they were stored
            self._naming.post(self._store_names)
        active = words[_SINCE] != 0
        begins, self._active = active and not self._active, active
        self.hold(urgent=begins)

    def steps(self) -> int:
        """Steps marked so far."""
        return int(record.hot_words(self.buffer)[record.STEPS_INDEX["steps"]])

    def rename(self, identity: Identity) -> None:
        """Put another identity into the slot: the user said more than was known at first.

        On any thread: one that finds another at it leaves its identity to that one.
        """
        self._renamed = True
        self._names.append((identity, False))
        self._naming.post(self._store_names)
        self.hold()

    def _store_names(self) -> None:
        while self._names:  # each is there until it is stored, whatever is raised in the middle
            identity, first = self._names[0]
            try:
                if not (first and self._renamed):
                    record.store_identity(self.buffer, identity)
            except record.RecordError:
                self._names.popleft()  # it never fits
                raise
            self._names.popleft()

    def hold(self, *, urgent: bool = False) -> None:
        """Take the lock again, in case the process has closed a descriptor of the slot.

        Cheap, and never waits. A descriptor that has become another file's is left alone for good.
        Where there is a thread it does that, with all that was stored: soon, or at once.
        """
        if self._copies:
            self._copies.wake(urgent=urgent)
            self._say()
        elif self._files and leads_to(self._files.slot, self._files.own):
            try:
                fcntl.lockf(self._files.slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                pass_on(error)

    def flush(self, seconds: float) -> bool:
        """Have all that was said on its disk; whether the disk answered within so many seconds."""
        self._answers = self._copies.flush(seconds) if self._copies else True
        self._say()
        return self._answers

    def close(self) -> None:
        """Let go of the files, and with the slot's descriptor of the lock."""
        self._closed = True
        self.buffer = bytearray(self.buffer)
        if self._copies:
            self._copies.close(_CLOSING if self._answers else 0)
            return
        if self._journal:
            self._journal.close()
        if self._files:
            let_go(self._files, self._files.slot)
        self._files = self._journal = None
