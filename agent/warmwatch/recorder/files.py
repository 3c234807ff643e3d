"""Files of a record: directory and name, permissions, creation, and the cleanup lock.

A record is built under a temporary name and renamed when it is complete. The cleanup lock keeps
programs that delete old files (systemd-tmpfiles) from deleting a living record.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from warmwatch.process.descriptors import (
    File,
    file_of,
    leads_to,
    opened_high,
    overwrite_in_place,
)
from warmwatch.process.settings import FOLDER, OTHER, SLOT, mode, readers
from warmwatch.recorder.mapping import kind_of
from warmwatch.recorder.neighbours import folder_stem, free_run
from warmwatch.shared import places, record
from warmwatch.shared.record import Identity

_LOCAL = frozenset(
    ("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"),
)


class CleanupLock:
    """Keeps the folder at ``path`` until it is released, where that can be."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = -1
        self._folder: File | None = None
        if kind_of(path) in _LOCAL:
            with contextlib.suppress(OSError):  # no descriptor is free: it may be removed
                self._take(path)

    def _take(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = opened_high(path, os.O_RDONLY | os.O_DIRECTORY)
        self._folder = file_of(os.fstat(self._descriptor))
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Let it be removed. A descriptor that has become another file's is left alone."""
        if leads_to(self._descriptor, self._folder):
            os.close(self._descriptor)
        self._descriptor = -1


_NEW = os.O_CREAT | os.O_EXCL
_SHARE = 64  # of the room that is left, a file takes no more than one of so many parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A record's open files.

    Attributes:
        folder: where they are. slot, journal: descriptors; the slot's lock is held.
        own, journaled: which files these are. room: how long the journal may become.
        mode: of files other than the slot. keeping: what keeps the folder from being cleaned away.
        image: what the slot was made to hold.
    """

    folder: Path
    slot: int
    journal: int
    own: File
    journaled: File
    room: int
    mode: int
    keeping: CleanupLock
    image: bytes


def make(directory: Path, image: bytes, identity: Identity, who: str) -> Files:
    """Make a record in ``directory`` that ``who`` can read, holding the slot ``image``.

    The slot's blocks are allocated for real, so that a full disk has room for it to the end.

    Raises:
        OSError: it cannot be made; nothing is left behind then.
    """
    stem = folder_stem(identity.run)
    name = f"{stem}-r{identity.rank}-{identity.pid}-{secrets.token_hex(3)}"
    aside = directory / f".{name}"
    aside.mkdir(mode=0o700)
    slot = journal = -1
    keeping = CleanupLock(aside)
    try:
        slot = opened_high(aside / record.SLOT, os.O_RDWR | _NEW, mode(SLOT, who))
        overwrite_in_place(slot)
        os.posix_fallocate(slot, 0, record.SIZE)
        os.pwrite(slot, image, 0)
        os.fchmod(slot, mode(SLOT, who))  # whatever the umask
        fcntl.lockf(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        flags = os.O_WRONLY | os.O_APPEND | _NEW
        journal = opened_high(aside / record.JOURNAL, flags, mode(OTHER, who))
        os.fchmod(journal, mode(OTHER, who))
        aside.chmod(mode(FOLDER, who))
        files = Files(
            folder=directory / name,
            slot=slot,
            journal=journal,
            own=file_of(os.fstat(slot)),
            journaled=file_of(os.fstat(journal)),
            room=room(journal, record.JOURNAL_LIMIT),
            mode=mode(OTHER, who),
            keeping=keeping,
            image=image,
        )
        aside.rename(files.folder)
    except BaseException:
        keeping.release()
        with contextlib.suppress(FileNotFoundError):
            discard(aside, slot, journal)
        raise
    return files


def reopened(files: Files) -> int:
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


def let_go(files: Files, slot: int) -> None:
    """Close ``slot``, and with it free the lock; unless the descriptor is another file's by now."""
    if leads_to(slot, files.own):
        os.close(slot)
    files.keeping.release()


def discard(folder: Path, *descriptors: int) -> None:
    """Remove a record's folder that is of no use."""
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
    for name in (record.SLOT, record.JOURNAL):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def room(file: int, most: int) -> int:
    """How long ``file`` may become, which is ``most`` at most.

    Where records are kept in memory, it is the training's memory too.
    """
    there = os.fstatvfs(file)
    if not there.f_blocks:  # it has no limit, or tells none
        return most
    return min(most, there.f_bavail * there.f_frsize // _SHARE)


class Making:
    """A record to be made in ``directory``, by whichever thread.

    Args:
        named: somebody chose the run's name. child: ends it. chosen: somebody chose the directory.

    Attributes:
        plain: the identity with no number. awaited: somebody waits for the record.
    """

    def __init__(
        self, directory: str, identity: Identity, *, named: bool, child: str, chosen: bool
    ) -> None:
        self.directory, self.plain = directory, replace(identity, run=identity.run + child)
        self._identity, self._named, self._child, self._chosen = identity, named, child, chosen
        self._decided: dict[None, Identity] = {}
        self.awaited = False

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
        return make(place, image(known), known, readers(str(place), who))


def _usable(directory: Path, *, chosen: bool, mode: int) -> Path:
    """The directory, made where that is ours to do."""
    if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
        raise OSError(f"{directory}: {problem}")
    if chosen or str(directory) != places.SHARED:
        directory.mkdir(mode, parents=chosen, exist_ok=True)
        if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
            raise OSError(f"{directory}: {problem}")  # somebody else was faster
    return directory
