"""The record, written. What of the agent makes or changes files is this and what it is made of.

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

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmwatch import places, record
from warmwatch._copies import Copies
from warmwatch._descriptors import leads_to
from warmwatch._guard import report, warn_once
from warmwatch._inbox import Inbox
from warmwatch._journal import Journal, line_of
from warmwatch._mapping import in_memory, mapped
from warmwatch._neighbours import free_run, prune
from warmwatch._readers import FOLDER, mode, readers
from warmwatch._record_files import Files, make
from warmwatch.record import Header, Identity

_PATIENCE = 2.0  # seconds that a training waits for a disk once, when its record is made


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
        self._who, self._tell = who, made
        self._header = b""
        self._files: Files | None = None
        self._journal: Journal | None = None
        self._copies: Copies | None = None
        self._dropped = 0
        self._names: deque[Identity] = deque()
        self._naming = Inbox()
        self._fence = threading.Lock()
        self._fence.acquire()

    @property
    def folder(self) -> Path | None:
        """The record's folder; ``None`` where there is none, or none yet."""
        files = self._copies.files if self._copies else self._files
        return files.folder if files else None

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
        self._header = record.pack_header(header)
        problem: OSError = OSError("no record directory is configured")
        for directory in directories:
            chosen = len(directories) == 1
            task = _Making(directory, identity, named=named, child=child, chosen=chosen)
            try:
                if in_memory(directory):
                    return self._open_in_memory(task)
                return self._open_on_disk(task)
            except OSError as error:
                problem = error
        raise problem

    def _open_in_memory(self, task: _Making) -> Identity:
        files = task.run(self._named, self._who)
        try:
            buffer = mapped(files.slot, record.SIZE)
        except (OSError, ImportError, AttributeError):
            self._copies = self._copied(lambda: files)
            self._copies.start()
        else:
            self.buffer = buffer
            self._journal = Journal(files.journal, files.journaled, files.room)
        self._files = files
        self._made(files)
        return task.identity

    def _open_on_disk(self, task: _Making) -> Identity:
        """Have the thread make it, and wait for that, but not for a disk that does not answer."""

        def make() -> Files:
            try:
                files = task.run(self._named, self._who)
            except OSError as error:
                if task.late:
                    warn_once(f"no record can be written ({error})")
                raise
            self._made(files)
            return files

        copies = self._copied(make)
        if not copies.start():
            raise OSError(errno.EAGAIN, "no thread can be started that writes it")
        answered = copies.settle(_PATIENCE)
        if copies.problem:
            raise copies.problem
        self._copies = copies
        if not answered:
            task.decide(task.plain)
            task.late = True
            warn_once(
                f"{task.directory} does not answer, so no monitor sees this run until it does; "
                "set WARMWATCH_DIR to a directory in memory, such as one in /dev/shm"
            )
        return task.identity

    def _made(self, files: Files) -> None:
        if self._tell:
            self._tell(files.folder, files.mode)

    def _named(self, identity: Identity) -> bytes:
        """The slot with its header and this identity."""
        self.buffer[: len(self._header)] = self._header
        self.rename(identity)
        return bytes(self.buffer)

    def _copied(self, make: Callable[[], Files]) -> Copies:
        assert isinstance(self.buffer, bytearray)
        return Copies(self.buffer, make, self._failed)

    def _failed(self, error: OSError) -> None:
        report("record", error)
        warn_once(
            f"the record of this run cannot be written now ({error}), so a monitor sees what was "
            "before; the training goes on, and it is tried again"
        )

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
        self.hold()

    def steps(self) -> int:
        """Steps marked so far."""
        return int(record.hot_words(self.buffer)[record.STEPS_INDEX["steps"]])

    def rename(self, identity: Identity) -> None:
        """Put another identity into the slot: the user said more than was known at first.

        On any thread: one that finds another at it leaves its identity to that one.
        """
        self._names.append(identity)
        self._naming.post(self._store_names)
        self.hold()

    def _store_names(self) -> None:
        while self._names:  # each is there until it is stored, whatever is raised in the middle
            try:
                record.store_identity(self.buffer, self._names[0])
            except record.RecordError:
                self._names.popleft()  # it never fits
                raise
            self._names.popleft()

    def hold(self) -> None:
        """Take the lock again, in case the process has closed a descriptor of the slot.

        Cheap, and never waits. A descriptor that has become another file's is left alone for good.
        """
        if self._copies:
            self._copies.wake()
        elif self._files and leads_to(self._files.slot, self._files.own):
            with contextlib.suppress(OSError):
                fcntl.lockf(self._files.slot, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def settle(self, seconds: float) -> bool:
        """Have all that was said on its disk; whether the disk answered within so many seconds."""
        return self._copies.settle(seconds) if self._copies else True

    def pause(self) -> None:
        """Leave the process without a thread of ours, until :meth:`go_on`."""
        if self._copies:
            self._copies.pause()

    def go_on(self) -> None:
        """After a pause."""
        if self._copies:
            self._copies.start()

    def close(self) -> None:
        """Let go of the files, and with the slot's descriptor of the lock."""
        self.buffer = bytearray(self.buffer)
        if self._copies:
            self._copies.close()
            return
        if self._journal:
            self._journal.close()
        if self._files and leads_to(self._files.slot, self._files.own):
            os.close(self._files.slot)
        if self._files:
            self._files.keeping.release()
        self._files = self._journal = None


class _Making:
    """A record to be made in ``directory``, by whichever thread."""

    def __init__(
        self, directory: str, identity: Identity, *, named: bool, child: str, chosen: bool
    ) -> None:
        self.directory, self.plain = directory, replace(identity, run=identity.run + child)
        self._identity, self._named, self._child, self._chosen = identity, named, child, chosen
        self._decided: dict[None, Identity] = {}
        self.late = False

    @property
    def identity(self) -> Identity:
        """What it carries: decided once."""
        return self._decided[None]

    def decide(self, identity: Identity) -> Identity:
        """Give it an identity, unless it has one."""
        return self._decided.setdefault(None, identity)

    def run(self, image: Callable[[Identity], bytes], who: str | None) -> Files:
        """Make it, with the slot that ``image`` is asked for. Raises OSError."""
        place = _usable(
            Path(self.directory), chosen=self._chosen, mode=mode(FOLDER, who or "owner")
        )
        asked = self._identity
        run = asked.run if self._named else free_run(place, asked, self._child)
        known = self.decide(replace(asked, run=run + self._child))
        try:
            bytes_of_slot = image(known)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from error
        files = make(place, bytes_of_slot, known, readers(str(place), who))
        with contextlib.suppress(OSError):  # housekeeping: another process may be at it too
            prune(place, own=files.own)
        return files


def _usable(directory: Path, *, chosen: bool, mode: int) -> Path:
    """The directory, made where that is ours to do."""
    if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
        raise OSError(f"{directory}: {problem}")
    if chosen or str(directory) != places.SHARED:
        directory.mkdir(mode, parents=chosen, exist_ok=True)
        if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
            raise OSError(f"{directory}: {problem}")  # somebody else was faster
    return directory
