"""Other records in the directory: names in use, and old records that can be removed.

The directory may be writable by everybody, so only regular files of this user are opened, and none
that could block. Our own slot is never opened: closing a descriptor of it would free its lock.
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
from warmwatch.recorder.descriptors import File, file_of, own_folder
from warmwatch.shared import record
from warmwatch.shared.record import Identity

_MOST_RECORDS = 200  # of one user in a directory


def free_run(directory: Path, identity: Identity, child: str = "") -> str:
    """The run's name, with a number if a running process of another launch has that name.

    ``child``: the suffix in a child process; the name must be free with and without it. Only this
    user's records count: another user's run of the same name is a different run.
    """
    taken = set()
    stem = folder_stem(identity.run)
    for slot, _ in _own_slots(directory):
        if not slot.parent.name.startswith(stem):
            continue
        with (
            _skipping(OSError, record.RecordError),  # an unreadable record reserves no name
            _opened(slot) as descriptor,
        ):
            other = record.unpack_identity(_image(descriptor))
            if other.launch != identity.launch and _is_held(descriptor):
                taken.add(other.run)
    names = (identity.run, *(f"{identity.run}-{n}" for n in range(2, len(taken) + 2)))
    return next(name for name in names if not {name, name + child} & taken)


def folder_stem(run: str) -> str:
    """Prefix of a run's folders. It does not begin with a dot, which marks incomplete records."""
    return re.sub(r"^\.|[^\w.+@-]+", "_", run)[:80]


def prune(directory: Path, *, own: File | None) -> None:
    """Remove this user's oldest ended records beyond the limit.

    ``own`` is the slot of this process. It is skipped: opening and closing it would free its lock,
    and it may have the oldest time of all after the clock was set back.
    """
    pairs = [
        (status.st_mtime, slot) for slot, status in _own_slots(directory) if file_of(status) != own
    ]
    for _, slot in sorted(pairs)[: max(0, len(pairs) + 1 - _MOST_RECORDS)]:
        with _skipping(OSError):  # another process may prune at the same time
            with own_folder(slot.parent) as inside:
                with _opened(record.SLOT, inside) as descriptor:
                    if not _is_over(descriptor):
                        continue
                for name in (record.JOURNAL, record.EXIT, record.STACKS, record.WORKERS):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=inside)
                os.unlink(record.SLOT, dir_fd=inside)
            slot.parent.rmdir()


def _own_slots(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The slots in ``directory`` that are regular files of this user, in folders of this user."""
    with os.scandir(directory) as entries:
        for entry in entries:
            with _skipping(OSError):  # no slot in it, or just removed
                if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                    continue
                if not _is_ours(entry.stat(follow_symlinks=False)):
                    continue
                slot = directory / entry.name / record.SLOT
                status = slot.lstat()
                if stat.S_ISREG(status.st_mode) and _is_ours(status):
                    yield slot, status


@contextlib.contextmanager
def _skipping(*expected: type[Exception]) -> Iterator[None]:
    """Skip one record on an ``expected`` error, unless the training's signal handler raised it."""
    try:
        yield
    except expected as error:
        pass_on(error)


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid()


@contextlib.contextmanager
def _opened(slot: str | Path, inside: int | None = None) -> Iterator[int]:
    """A descriptor of another process's slot.

    Raises:
        OSError: it is not a regular file of this user, or is gone.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(slot, flags, dir_fd=inside)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_ours(status):
            raise PermissionError(f"{slot} is not a record of this user's")
        yield descriptor
    finally:
        os.close(descriptor)


def _image(descriptor: int) -> bytes:
    """The bytes of a slot; raises RecordError for another version."""
    image = os.pread(descriptor, record.SIZE, 0)
    record.check_header(image)
    return image


def _is_over(descriptor: int) -> bool:
    """Whether no process can write to the slot again.

    A free lock is not sufficient: the training's code may have freed it by closing a descriptor of
    the slot. So without a recorded end, the process must be gone as well.
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
    return pid > 0  # 0 is unknown, and addresses the caller's process group


def _is_held(descriptor: int) -> bool:
    """Whether another process holds the lock of the slot."""
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
    return record.lock_holder(answer) is not None
