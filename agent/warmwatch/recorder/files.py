"""Files of a record: directory and name, permissions, creation, and the cleanup lock.

A record is created under a temporary name and renamed when it is complete. The cleanup lock stops
programs that delete old files (systemd-tmpfiles) from deleting the record of a running process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from warmwatch.recorder.descriptors import (
    File,
    file_of,
    leads_to,
    opened_high,
    overwrite_in_place,
    own_folder,
)
from warmwatch.recorder.mapping import kind_of
from warmwatch.recorder.other_records import folder_stem, free_run
from warmwatch.shared import places, record
from warmwatch.shared.record import Identity

_LOCAL = frozenset(
    ("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"),
)


class CleanupLock:
    """Protects the folder at ``path`` from cleanup until released, on local filesystems."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = -1
        self._folder: File | None = None
        if kind_of(path) in _LOCAL:
            with contextlib.suppress(OSError):  # no descriptor is free: go on without the lock
                self._acquire(path)

    def _acquire(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = opened_high(path, os.O_RDONLY | os.O_DIRECTORY)
        self._folder = file_of(os.fstat(self._descriptor))
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Release the lock. A descriptor that now belongs to another file is left open."""
        if leads_to(self._descriptor, self._folder):
            os.close(self._descriptor)
        self._descriptor = -1


_BITS = {"owner": 0o700, "group": 0o750, "all": 0o755}
_DEFAULT_ACL = "system.posix_acl_default"

# Modes before ``_mode()`` masks them. The slot is read-only: the agent has it open already, and no
# program truncates it by accident.
_FOLDER, _SLOT, _OTHER = 0o777, 0o444, 0o666


def readers_of(directory: str, chosen: str | None) -> str:
    """Readers of records in ``directory``: ``chosen``, else by its set-group-ID bit or ACL.

    With a default ACL, ``group`` means the users that the ACL allows.
    """
    if chosen:
        return chosen
    with contextlib.suppress(OSError, AttributeError):
        if Path(directory).stat().st_mode & stat.S_ISGID:
            return "group"
    with contextlib.suppress(OSError, AttributeError):
        os.getxattr(directory, _DEFAULT_ACL)
        return "group"
    return "owner"


def _mode(kind: int, readers: str) -> int:
    """The mode of a file or folder (``_FOLDER``, ``_SLOT``, ``_OTHER``) for these readers."""
    return kind & _BITS[readers]


_NEW = os.O_CREAT | os.O_EXCL
_OLD = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SHARE = 64  # a file may take at most this fraction (1/64) of the free space


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A record's open files.

    Attributes:
        folder: the record's folder.
        slot, journal: descriptors; the slot's lock is held.
        slot_file, journal_file: device and inode of each.
        room: size limit of the journal in bytes.
        mode: permissions of files other than the slot.
        cleanup_lock: protects the folder from cleanup.
        image: the initial content of the slot.
    """

    folder: Path
    slot: int
    journal: int
    slot_file: File
    journal_file: File
    room: int
    mode: int
    cleanup_lock: CleanupLock
    image: bytes


def create(directory: Path, image: bytes, identity: Identity, readers: str) -> Files:
    """Create a record in ``directory``, with the slot ``image``, for these ``readers``.

    The slot's blocks are allocated, so that a disk that fills up later still has room for it.

    Raises:
        OSError: it cannot be created; nothing is left behind.
    """
    stem = folder_stem(identity.run)
    name = f"{stem}-r{identity.rank}-{identity.pid}-{secrets.token_hex(3)}"
    temporary = directory / f".{name}"
    temporary.mkdir(mode=0o700)
    with own_folder(temporary) as inside:
        return _create(directory / name, temporary, inside, image, readers)


def _create(folder: Path, temporary: Path, inside: int, image: bytes, readers: str) -> Files:
    """Create the files in ``temporary``, whose descriptor is ``inside``, and rename it."""
    slot = journal = -1
    cleanup_lock = CleanupLock(temporary)
    try:
        slot = opened_high(record.SLOT, os.O_RDWR | _NEW, _mode(_SLOT, readers), inside=inside)
        overwrite_in_place(slot)
        os.posix_fallocate(slot, 0, record.SIZE)
        os.pwrite(slot, image, 0)
        os.fchmod(slot, _mode(_SLOT, readers))  # regardless of the umask
        fcntl.lockf(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        flags = os.O_WRONLY | os.O_APPEND | _NEW
        journal = opened_high(record.JOURNAL, flags, _mode(_OTHER, readers), inside=inside)
        os.fchmod(journal, _mode(_OTHER, readers))
        os.fchmod(inside, _mode(_FOLDER, readers))
        files = Files(
            folder=folder,
            slot=slot,
            journal=journal,
            slot_file=file_of(os.fstat(slot)),
            journal_file=file_of(os.fstat(journal)),
            room=room(journal, record.JOURNAL_LIMIT),
            mode=_mode(_OTHER, readers),
            cleanup_lock=cleanup_lock,
            image=image,
        )
        temporary.rename(files.folder)
    except BaseException:
        cleanup_lock.release()
        with contextlib.suppress(FileNotFoundError):
            _discard(temporary, inside, slot, journal)
        raise
    return files


def reopened(files: Files) -> int:
    """A new descriptor of the slot, after the process has closed the previous one.

    No other descriptor is open then, so closing this one frees no lock.

    Raises:
        OSError: the slot is gone or is another file.
    """
    with _folder_of(files) as inside:
        readable = os.open(record.SLOT, os.O_RDONLY | _OLD, dir_fd=inside)
        try:
            status = os.fstat(readable)
            if file_of(status) != files.slot_file:
                raise FileNotFoundError(f"{files.folder / record.SLOT} is another file")
            os.fchmod(readable, stat.S_IMODE(status.st_mode) | stat.S_IWUSR)  # it is read-only
            try:
                return opened_high(record.SLOT, os.O_RDWR | _OLD, inside=inside)
            finally:
                os.fchmod(readable, stat.S_IMODE(status.st_mode))
        finally:
            os.close(readable)


def opened_beside(files: Files, name: str, flags: int) -> int:
    """A descriptor, with a high number, of another file of the record.

    Raises:
        OSError: the record's folder is gone or is another one.
    """
    with _folder_of(files) as inside:
        descriptor = opened_high(name, flags, files.mode, inside=inside)
    try:
        os.fchmod(descriptor, files.mode)  # regardless of the umask
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _folder_of(files: Files) -> Iterator[int]:
    """A descriptor of the record's folder, which is known by its slot.

    The folder's own inode proves nothing: overlay filesystems may give it another one.
    """
    with own_folder(files.folder) as inside:
        there = os.stat(record.SLOT, dir_fd=inside, follow_symlinks=False)
        if file_of(there) != files.slot_file:
            raise FileNotFoundError(f"{files.folder / record.SLOT} is another file")
        yield inside


def close_slot(files: Files, slot: int) -> None:
    """Close ``slot``, which frees its lock, unless the descriptor now belongs to another file."""
    if leads_to(slot, files.slot_file):
        os.close(slot)
    files.cleanup_lock.release()


def _discard(folder: Path, inside: int, *descriptors: int) -> None:
    """Remove the folder of an incomplete record."""
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
    for name in (record.SLOT, record.JOURNAL):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=inside)
    folder.rmdir()


def room(file: int, most: int) -> int:
    """Size limit of ``file`` in bytes: ``most``, or less if little space is free.

    A record in tmpfs uses the same memory as the training.
    """
    filesystem = os.fstatvfs(file)
    if not filesystem.f_blocks:  # no limit, or not reported
        return most
    return min(most, filesystem.f_bavail * filesystem.f_frsize // _SHARE)


class RecordCreation:
    """A record to be created in ``directory``, on any thread.

    Args:
        named: the run's name was set explicitly. child: suffix of the name in a child process.
        chosen: the directory was set explicitly.

    Attributes:
        plain: the identity without a number in its name. awaited: a caller waits for the record.
    """

    def __init__(
        self, directory: str, identity: Identity, *, named: bool, child: str, chosen: bool
    ) -> None:
        self.directory, self.plain = directory, identity._replace(run=identity.run + child)
        self._identity, self._named, self._child, self._chosen = identity, named, child, chosen
        self._decided: dict[None, Identity] = {}
        self.awaited = False

    @property
    def identity(self) -> Identity:
        """The identity of the record; decided once."""
        return self._decided[None]

    def decide(self, identity: Identity) -> Identity:
        """Set the identity, unless it is set; the one that is."""
        return self._decided.setdefault(None, identity)

    def run(self, image: Callable[[Identity], bytes], configured: str | None) -> Files:
        """Create the record.

        Args:
            image: returns the slot for an identity.
            configured: the configured readers; ``None``: those of the directory.

        Raises:
            OSError: it cannot be created.
        """
        directory = Path(self.directory)
        _prepare(directory, chosen=self._chosen, mode=_mode(_FOLDER, configured or "owner"))
        initial = self._identity
        run = initial.run if self._named else free_run(directory, initial, self._child)
        unnumbered = "" if run == initial.run else self.plain.run
        numbered = initial._replace(run=run + self._child, unnumbered=unnumbered)
        identity = self.decide(numbered)
        return create(directory, image(identity), identity, readers_of(str(directory), configured))


def _prepare(directory: Path, *, chosen: bool, mode: int) -> None:
    """Create the directory, except the shared one; raise OSError if it must not be used."""
    if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
        raise OSError(f"{directory}: {problem}")
    if chosen or str(directory) != places.SHARED:
        directory.mkdir(mode, parents=chosen, exist_ok=True)
        if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
            raise OSError(f"{directory}: {problem}")  # another user created it first
