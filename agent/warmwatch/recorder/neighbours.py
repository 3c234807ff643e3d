"""Other records in the directory: names in use, and old records that can be removed.

The directory may be open to everybody, so nothing is opened that is not a regular file of this
user's, and nothing that could hold us up. Our own slot is never opened: to close a descriptor of it
would free its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from warmwatch._guard import pass_on
from warmwatch.process.descriptors import File, file_of
from warmwatch.shared import record
from warmwatch.shared.record import Identity

_KEPT = 200  # records kept in a directory: enough to look back, bounded for good


def free_run(directory: Path, identity: Identity, child: str = "") -> str:
    """The run's name, numbered where a living process of another launch has it already.

    With or without what ends it in a ``child``. Of this user's records alone: another user's run
    of the same name is another run.
    """
    taken = set()
    stem = folder_stem(identity.run)
    for slot, _ in _own_slots(directory):
        if not slot.parent.name.startswith(stem):
            continue
        with (
            _passing_over(OSError, record.RecordError),  # not ours to judge here
            _opened(slot) as descriptor,
        ):
            other = record.unpack_identity(_image(descriptor))
            if other.launch != identity.launch and _is_held(descriptor):
                taken.add(other.run)
    names = (identity.run, *(f"{identity.run}-{n}" for n in range(2, len(taken) + 2)))
    return next(name for name in names if not {name, name + child} & taken)


def folder_stem(run: str) -> str:
    """How the names of the folders of a run begin: with no dot, which is a record being made."""
    return re.sub(r"^\.|[^\w.+@-]+", "_", run)[:80]


def prune(directory: Path, *, own: File | None) -> None:
    """Remove this user's oldest ended records beyond the number kept; others' are not ours.

    ``own`` is the slot that this process holds: to open it, even to ask who holds it, would free
    its lock, and its time may be the oldest of all where the clock was set back.
    """
    found = [
        (status.st_mtime, slot) for slot, status in _own_slots(directory) if file_of(status) != own
    ]
    for _, slot in sorted(found)[: max(0, len(found) + 1 - _KEPT)]:
        with _passing_over(OSError):  # somebody else prunes too
            with _opened(slot) as descriptor:
                if not _is_over(descriptor):
                    continue
            for name in (record.JOURNAL, record.EXIT, record.STACKS):
                (slot.parent / name).unlink(missing_ok=True)
            slot.unlink()
            slot.parent.rmdir()


def _own_slots(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The slots in ``directory`` that are regular files of this user's in his own folders."""
    with os.scandir(directory) as entries:
        for entry in entries:
            with _passing_over(OSError):  # no slot in it, or just removed
                if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                    continue
                if not _is_ours(entry.stat(follow_symlinks=False)):
                    continue
                slot = directory / entry.name / record.SLOT
                status = slot.lstat()
                if stat.S_ISREG(status.st_mode) and _is_ours(status):
                    yield slot, status


@contextlib.contextmanager
def _passing_over(*expected: type[Exception]) -> Iterator[None]:
    """Of one record, which costs the others nothing; the training's own alarm is none of these."""
    try:
        yield
    except expected as error:
        pass_on(error)


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid()


@contextlib.contextmanager
def _opened(slot: Path) -> Iterator[int]:
    """A descriptor of another process's slot.

    Raises:
        OSError: it is no regular file of this user's, or no longer there.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(slot, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_ours(status):
            raise PermissionError(f"{slot} is not a record of this user's")
        yield descriptor
    finally:
        os.close(descriptor)


def _image(descriptor: int) -> bytes:
    """A slot's bytes; raises RecordError where they are of a version that is not read."""
    if not record.SIZE <= (size := os.fstat(descriptor).st_size) <= record.LARGEST_SIZE:
        raise record.RecordError("not a slot of a version that is read")
    image = os.pread(descriptor, size, 0)
    record.check_header(image)
    return image


def _is_over(descriptor: int) -> bool:
    """Whether nobody will write to the slot any more.

    A free lock alone does not say so: the process's own code may have freed it by closing a
    descriptor of the slot. So one that said no end has to be gone as well.
    """
    if _is_held(descriptor):
        return False
    try:
        slot = record.unpack(_image(descriptor))
    except record.RecordError:
        return True
    return bool(slot.compile.end_code) or not _exists(slot.identity.pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return pid > 0  # 0 is not known, and would ask about our own group


def _is_held(descriptor: int) -> bool:
    """Whether another process holds the lock of the slot."""
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
    return record.lock_holder(answer) is not None
