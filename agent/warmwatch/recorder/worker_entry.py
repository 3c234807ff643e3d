"""What a DataLoader's worker compiles, written beside the record of its training.

A worker has no record, and never writes to that of its training. It has an entry in the file
``workers`` of the same folder (see ``record.workers_file``), from its first compile activity on. A
thread of its own writes it, so that no disk holds up the worker.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from warmwatch._guard import report
from warmwatch.process.process_tree import start_directory
from warmwatch.recorder.descriptors import file_of, leads_to, own_folder
from warmwatch.shared import places, record
from warmwatch.shared.record import workers_file
from warmwatch.shared.record.workers_file import Entry

_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WorkerEntry:
    """The entry of this process; ``folder``: returns the record of its training, if it has one."""

    def __init__(self, folder: Callable[[], Path | None]) -> None:
        self._folder = folder
        self._updates: SimpleQueue[Entry] = SimpleQueue()
        self._thread: Thread | None = None

    def update(self, entry: Entry) -> None:
        """Write ``entry``: the sums of this process alone."""
        self._updates.put(entry)
        if self._thread is None:
            self._thread = Thread(target=self._follow, name="warmwatch-worker", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        try:
            if (taken := _take(self._folder())) is None:
                return
            descriptor, index, before = taken
            file = file_of(os.fstat(descriptor))
            while True:
                now = self._updates.get()
                whole = now._replace(
                    processes=before.processes + 1,
                    begun=before.begun + now.begun,
                    compile_ns=before.compile_ns + now.compile_ns,
                )
                if not leads_to(descriptor, file):  # closed by other code
                    return
                os.pwrite(descriptor, workers_file.pack(whole), index * workers_file.SIZE)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("workers", error)


def _take(folder: Path | None) -> tuple[int, int, Entry] | None:
    """The file, a free entry of it and its content; ``None`` if there is none.

    The file stays open: closing any descriptor of it would free the lock.
    """
    if folder is None:
        return None
    descriptor = _opened(folder)
    entries = workers_file.unpack(os.pread(descriptor, workers_file.MOST * workers_file.SIZE, 0))
    for index in range(workers_file.MOST):
        try:
            at = index * workers_file.SIZE
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, workers_file.SIZE, at)
        except BlockingIOError:
            continue
        return descriptor, index, entries[index] if index < len(entries) else Entry()
    os.close(descriptor)
    return None


def _opened(folder: Path) -> int:
    """The file ``workers`` of our own record in ``folder``, readable by the record's readers.

    Raises:
        OSError: it cannot be opened, or is another user's.
    """
    with own_folder(folder) as inside:
        mode = os.stat(record.JOURNAL, dir_fd=inside, follow_symlinks=False).st_mode
        descriptor = os.open(record.WORKERS, _FILE, 0o600, dir_fd=inside)
        result = os.fstat(descriptor)
        if not stat.S_ISREG(result.st_mode) or result.st_uid != os.geteuid():
            os.close(descriptor)
            raise PermissionError(f"{folder / record.WORKERS} is not this user's file")
        if stat.S_IMODE(result.st_mode) != stat.S_IMODE(mode):
            os.fchmod(descriptor, stat.S_IMODE(mode))
        return descriptor


def folder_of_parent() -> Path | None:
    """The record of the process that spawned this one; ``None`` if none is found."""
    parent = multiprocessing.parent_process()
    if parent is None or not parent.pid:
        return None
    directories = places.directories(os.environ, os.geteuid(), start_directory())
    for directory in map(Path, directories):
        result = {}
        for path in directory.glob(f"[!.]*-r*-{parent.pid}-*"):
            with suppress(FileNotFoundError):  # a daemon has removed it meanwhile
                status = path.lstat()
                if status.st_uid == os.geteuid():  # another user may add to a shared directory
                    result[path] = status.st_mtime
        if result:  # pids are reused: the newest
            return max(result, key=result.__getitem__)
    return None
