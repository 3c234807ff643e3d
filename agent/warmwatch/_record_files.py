"""A record's folder and files, made: built aside, then renamed into place when they are whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from warmwatch import record
from warmwatch._ageing import Keeping
from warmwatch._descriptors import File, file_of, leads_to, opened_high
from warmwatch._guard import pass_on
from warmwatch._neighbours import folder_stem
from warmwatch._readers import FOLDER, OTHER, SLOT, mode
from warmwatch.record import Identity

_NEW = os.O_CREAT | os.O_EXCL
_SHARE = 64  # of the room that is left, a file takes no more than one of so many parts
_GET_FLAGS, _SET_FLAGS, _NO_COPY_ON_WRITE = 0x80086601, 0x40086602, 0x00800000


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
    keeping: Keeping
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
    keeping = Keeping(aside)
    try:
        slot = opened_high(aside / record.SLOT, os.O_RDWR | _NEW, mode(SLOT, who))
        _overwrite_in_place(slot)
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


def _overwrite_in_place(slot: int) -> None:
    """On btrfs: where each store goes to a new block, allocated ones are of no use."""
    flags = bytearray(8)
    try:
        fcntl.ioctl(slot, _GET_FLAGS, flags)
        wanted = int.from_bytes(flags, "little") | _NO_COPY_ON_WRITE
        fcntl.ioctl(slot, _SET_FLAGS, wanted.to_bytes(8, "little"))
    except OSError as error:  # other filesystems know no such flag, and need none
        pass_on(error)
