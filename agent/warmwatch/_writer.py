"""The record's two files, written. The only module of the agent that makes or changes files.

Until :meth:`Writer.open` succeeds, and after it failed, ``buffer`` is plain memory: the agent works
all the same, so ``warmwatch.state()`` answers where no record can be written.

Invariants: the slot's blocks are allocated before it is mapped (a store to a hole on a full disk
kills the process with SIGBUS); the folder appears under its name only when it is whole; the
descriptor that holds the lock is never closed while the process speaks, nor is the slot ever opened
a second time by us (closing any descriptor of it would free the lock). The training's own code may
do that, so the lock is taken again whenever something rare is written. It may even close all it has
and open files of its own: so a descriptor is looked at before it is written to or closed, and one
that has become another file's is left alone for good.

Order: a store into a sealed block is seen before every hot word that is stored after it. x86 keeps
that order by itself; elsewhere a lock that is let go and taken makes it so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import secrets
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmwatch import places, record
from warmwatch._neighbours import File, file_of, folder_stem, free_run, prune
from warmwatch.record import Header, Identity


class Writer:
    """One record: opened once, written to until :meth:`close`."""

    def __init__(self) -> None:
        self.buffer: bytearray | mmap.mmap = record.blank()
        self.folder: Path | None = None
        self.dropped = 0
        self._slot = self._journal = -1
        self._own: File | None = None
        self._journaled: File | None = None  # the journal, from opening it to closing it
        self._names: deque[Identity] = deque()
        self._naming = threading.Lock()  # only ever tried, never waited for
        self._fence = threading.Lock()
        self._fence.acquire()
        self._room = record.JOURNAL_LIMIT
        self._torn = False

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
        problem: OSError = OSError("no record directory is configured")
        for directory in directories:
            try:
                place = _usable(Path(directory), chosen=len(directories) == 1)
                run = identity.run if named else free_run(place, identity, child)
                known = replace(identity, run=run + child)
                self._make(place, header, known)
            except OSError as error:
                problem = error
            else:
                return known
        raise problem

    def _make(self, directory: Path, header: Header, identity: Identity) -> None:
        stem = folder_stem(identity.run)
        name = f"{stem}-r{identity.rank}-{identity.pid}-{secrets.token_hex(3)}"
        aside = directory / f".{name}"
        aside.mkdir(mode=0o755)
        slot = journal = -1
        try:
            slot = os.open(aside / record.SLOT, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            os.posix_fallocate(slot, 0, record.SIZE)
            fcntl.lockf(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            buffer = mmap.mmap(slot, record.SIZE)
            buffer[:] = bytes(self.buffer)
            packed = record.pack_header(header)
            buffer[: len(packed)] = packed
            record.store_identity(buffer, identity)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            journal = os.open(aside / record.JOURNAL, flags, 0o644)
            aside.rename(directory / name)
        except (OSError, ValueError):
            _discard(aside, slot, journal)
            raise
        self.buffer, self._slot, self._journal = buffer, slot, journal
        self.folder = directory / name
        self._own, self._journaled = file_of(os.fstat(slot)), file_of(os.fstat(journal))
        with contextlib.suppress(OSError):  # housekeeping: another process may be at it too
            prune(directory, own=self._own)

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal; one that cannot be written is counted in ``dropped``."""
        if self._journaled is None:
            return
        self.hold()
        known = {k: v for k, v in values.items() if v is not None}
        line = json.dumps({"t": t, "event": event, **known}, separators=(",", ":")) + "\n"
        data = ("\n" * self._torn + line).encode("utf-8", "backslashreplace")
        if (len(data) > self._room and not essential) or not self._keeps_journal():
            self.dropped += 1
            return
        try:
            written = os.write(self._journal, data)
        except OSError:
            written = 0
        self._room -= written
        if written != len(data):  # a full disk: the next line that fits starts afresh
            self.dropped += 1
            self._torn = self._torn or written > 0
        else:
            self._torn = False

    def publish(self, words: list[int]) -> None:
        """Seal the words of the compile block into the slot. One caller at a time."""
        words[record.COMPILE_INDEX["journal_dropped"]] = self.dropped
        record.store_compile(self.buffer, words)
        self._fence.acquire(blocking=False)  # it is, unless a signal handler raised in the middle
        self._fence.release()
        self._fence.acquire(blocking=False)
        self.hold()

    def steps(self) -> int:
        """Steps marked so far."""
        return int(record.hot_words(self.buffer)[record.STEPS_INDEX["steps"]])

    def rename(self, identity: Identity) -> None:
        """Put another identity into the slot: the user said more than was known at first.

        On any thread: one that finds another at it leaves its identity to that one.
        """
        self._names.append(identity)
        while self._names and self._naming.acquire(blocking=False):
            try:
                while self._names:
                    record.store_identity(self.buffer, self._names.popleft())
            finally:
                self._naming.release()
        self.hold()

    def hold(self) -> None:
        """Take the lock again, in case the process has closed a descriptor of the slot.

        Cheap, and never waits. A descriptor that has become another file's is left alone for good.
        """
        if self._slot < 0:
            return
        try:
            if file_of(os.fstat(self._slot)) != self._own:
                self._slot = -1
                return
            fcntl.lockf(self._slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EBADF:
                self._slot = -1

    def close(self) -> None:
        """Let go of the files, and with the slot's descriptor of the lock."""
        self.buffer = bytearray(self.buffer)
        for descriptor, file in ((self._journal, self._journaled), (self._slot, self._own)):
            if _leads_to(descriptor, file):
                os.close(descriptor)
        self._slot = self._journal = -1
        self._journaled = None

    def _keeps_journal(self) -> bool:
        """Whether the journal can still be written to; once it cannot, it never is again."""
        if not _leads_to(self._journal, self._journaled):
            self._journal = -1
        return self._journal >= 0


def _leads_to(descriptor: int, file: File | None) -> bool:
    """Whether a descriptor is still that of ``file``: the program may have closed all it has."""
    try:
        return descriptor >= 0 and file_of(os.fstat(descriptor)) == file
    except OSError:
        return False


def _usable(directory: Path, *, chosen: bool) -> Path:
    """The directory, made where that is ours to do."""
    if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
        raise OSError(f"{directory}: {problem}")
    if chosen or str(directory) != places.SHARED:
        directory.mkdir(mode=0o755, parents=chosen, exist_ok=True)
        if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
            raise OSError(f"{directory}: {problem}")  # somebody else was faster
    return directory


def _discard(aside: Path, slot: int, journal: int) -> None:
    for descriptor in (slot, journal):
        if descriptor >= 0:
            os.close(descriptor)
    for name in (record.SLOT, record.JOURNAL):
        (aside / name).unlink(missing_ok=True)
    aside.rmdir()
