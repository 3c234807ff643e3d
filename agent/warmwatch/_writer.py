"""The record's two files, written. The only module of the agent that makes or changes files.

Until :meth:`Writer.open` succeeds, and after it failed, ``buffer`` is plain memory: the agent works
all the same, so ``warmwatch.state()`` answers where no record can be written.

Invariants: the slot's blocks are allocated before it is mapped (a store to a hole on a full disk
kills the process with SIGBUS); the folder appears under its name only when it is whole; the
descriptor that holds the lock is never closed while the process speaks, nor is the slot ever opened
a second time (closing any descriptor of it would free the lock).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import re
import secrets
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmwatch import record
from warmwatch.record import Header, Identity

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux
_KEPT = 200  # ended records kept in a directory: enough to look back, bounded for good


class Writer:
    """One record: opened once, written to until :meth:`close`."""

    def __init__(self) -> None:
        self.buffer: bytearray | mmap.mmap = bytearray(record.SIZE)
        self.folder: Path | None = None
        self.dropped = 0
        self._slot = self._journal = -1
        self._room = record.JOURNAL_LIMIT
        self._torn = False
        self._mark = 0

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
        stem = _folder_stem(identity.run)
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
            _put_identity(buffer, identity)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            journal = os.open(aside / record.JOURNAL, flags, 0o644)
            aside.rename(directory / name)
        except OSError:
            _discard(aside, slot, journal)
            raise
        self.buffer, self._slot, self._journal = buffer, slot, journal
        self.folder = directory / name
        with contextlib.suppress(OSError):  # housekeeping: another process may be at it too
            _prune(directory)

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal; one that cannot be written is counted in ``dropped``."""
        if self._journal < 0:
            return
        known = {k: v for k, v in values.items() if v is not None}
        line = json.dumps({"t": t, "event": event, **known}, separators=(",", ":")) + "\n"
        data = ("\n" * self._torn + line).encode("utf-8", "backslashreplace")
        if len(data) > self._room and not essential:
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
        """Store the words of the rare block, with how many lines of the journal were dropped."""
        self._mark += 1
        words[record.COMPILE_INDEX["journal_dropped"]] = self.dropped
        record.COMPILE_STRUCT.pack_into(
            self.buffer, record.COMPILE_OFFSET, self._mark, *words, self._mark
        )

    def steps(self) -> int:
        """Steps marked so far."""
        marks = record.STEPS_STRUCT.unpack_from(self.buffer, record.STEPS_OFFSET)
        return int(marks[0])

    def rename(self, identity: Identity) -> None:
        """Put another identity into the slot: the user said more than was known at first."""
        _put_identity(self.buffer, identity)

    def close(self) -> None:
        """Let go of the files, and with the slot's descriptor of the lock."""
        self.buffer = bytearray(self.buffer)
        for descriptor in (self._journal, self._slot):
            if descriptor >= 0:
                os.close(descriptor)
        self._slot = self._journal = -1


def _usable(directory: Path, *, chosen: bool) -> Path:
    """The directory, made where that is ours to do.

    One that the user chose is taken as it is. Of the default ones, a parent must be there, and a
    folder that somebody else put in our place is refused.
    """
    if not chosen and not directory.parent.is_dir():
        raise FileNotFoundError(f"{directory.parent} does not exist")
    if chosen or directory != Path("/run/warmwatch"):  # that one is the administrator's to make
        directory.mkdir(mode=0o755, parents=chosen, exist_ok=True)
    found = directory.stat() if chosen else directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{directory} is not a directory")
    if not chosen and found.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{directory} belongs to another user")
    return directory


def free_run(directory: Path, identity: Identity, child: str = "") -> str:
    """The run's name, numbered where a living process of another launch has it already.

    With or without what ends it in a ``child``.
    """
    taken = set()
    for slot in directory.glob(f"{_folder_stem(identity.run)}*/{record.SLOT}"):
        with contextlib.suppress(OSError, record.RecordError):  # not ours to judge here
            data = slot.read_bytes()[record.IDENTITY_OFFSET : record.STEPS_OFFSET]
            other = record.unpack_identity(data)
            if other.launch != identity.launch and slot_holder(slot) is not None:
                taken.add(other.run)
    names = (identity.run, *(f"{identity.run}-{n}" for n in range(2, len(taken) + 2)))
    return next(name for name in names if not {name, name + child} & taken)


def _folder_stem(run: str) -> str:
    return re.sub(r"[^\w.+@-]+", "_", run)[:80]


def _put_identity(buffer: bytearray | mmap.mmap, identity: Identity) -> None:
    packed = record.pack_identity(identity)
    buffer[record.IDENTITY_OFFSET : record.IDENTITY_OFFSET + len(packed)] = packed


def _discard(aside: Path, slot: int, journal: int) -> None:
    for descriptor in (slot, journal):
        if descriptor >= 0:
            os.close(descriptor)
    for name in (record.SLOT, record.JOURNAL):
        (aside / name).unlink(missing_ok=True)
    aside.rmdir()


def _prune(directory: Path) -> None:
    """Remove this user's oldest ended records beyond the number kept; others' are not ours."""
    own = []
    for slot in directory.glob(f"*/{record.SLOT}"):
        with contextlib.suppress(OSError):  # somebody else prunes too
            found = slot.stat()
            if found.st_uid == os.geteuid():
                own.append((found.st_mtime, slot))
    for _, slot in sorted(own)[: max(0, len(own) - _KEPT)]:
        with contextlib.suppress(OSError):
            if slot_holder(slot) is None:
                for other in (record.JOURNAL, record.EXIT):
                    (slot.parent / other).unlink(missing_ok=True)
                slot.unlink()
                slot.parent.rmdir()


def slot_holder(slot: Path) -> int | None:
    """Pid of the process that holds another process's slot; ``None`` where none does."""
    descriptor = os.open(slot, os.O_RDONLY)
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
        return None if kind == fcntl.F_UNLCK else pid
    finally:
        os.close(descriptor)
