"""One record's folder, opened for one poll: its owner, its files, its exit status."""

from __future__ import annotations

import fcntl
import os
import select
import stat
import struct
import threading
import time
from pathlib import Path
from types import TracebackType

from warmwatch.shared import record
from warmwatch.shared.record import CompileCounts, RecordError
from warmwatch_monitor.model import Death

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a fifo must not block


class Folder:
    """The folder at ``path``; ``owner`` is its uid. Open until the ``with`` ends.

    Raises:
        OSError: it cannot be opened, or is no folder. RecordError: everybody may write to it.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, _FOLDER)
        status = os.fstat(self._descriptor)
        self.owner = status.st_uid
        if status.st_mode & stat.S_IWOTH:
            os.close(self._descriptor)
            raise RecordError(_open_to_all("it", status))

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def size(self, name: str) -> int:
        """The size of the file ``name`` in bytes. Raises OSError."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_size

    def open(self, name: str) -> tuple[int, os.stat_result]:
        """A descriptor of the file ``name``, for the caller to close, and its status.

        Raises:
            OSError: it cannot be opened. RecordError: it is no file, or has another owner.
        """
        descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        status = os.fstat(descriptor)
        if (problem := self._problem(name, status)) is not None:
            os.close(descriptor)
            raise RecordError(problem)
        return descriptor, status

    def _problem(self, name: str, status: os.stat_result) -> str | None:
        if not stat.S_ISREG(status.st_mode):
            return f"its {name} is not a regular file"
        if status.st_uid != self.owner:
            return (
                f"its {name} belongs to user {status.st_uid} and its folder to user {self.owner}: "
                "a record has one owner"
            )
        return _open_to_all(f"its {name}", status) if status.st_mode & stat.S_IWOTH else None


def _open_to_all(what: str, status: os.stat_result) -> str:
    mode = stat.S_IMODE(status.st_mode)
    return f"every user may write to {what} (mode {mode:04o}), so its writer is unknown: chmod o-w"


_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes), linux/pidfd.h
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("<Q52xi")  # the valid fields; the exit status as wait(2) returns it
_EXIT_STATUS = -1  # the last field of /proc/PID/stat
_SIGNAL = 0x7F  # the signal in an exit status; 0 if the process exited
_MOST = 64  # one status is 4 bytes; the agent writes no longer file


def at_the_end(counts: CompileCounts, left: bytes) -> CompileCounts:
    """The facts of a process that is gone, with its exit code, which decides.

    A process that had reached its end and announced its exit status, but wrote none, was killed.
    """
    if record.broken_promise(left):
        return record.without_end(counts)
    return record.with_exit_code(counts, record.exit_code(left))


def left_by(folder: Folder) -> bytes:
    """The file's bytes; none if it is missing, or not the agent's."""
    try:
        descriptor, status = folder.open(record.EXIT)
    except (OSError, RecordError):
        return b""
    try:
        return os.pread(descriptor, _MOST, 0) if status.st_size <= _MOST else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


class Ending:
    """The end of one process, separate from a later process with its pid.

    ``death``: how it was killed; ``None`` if it lives, exited, or its end was not seen.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.death: Death | None = None


class ExitWatch:
    """Waits for the ends of processes, in a thread that ends with the reader.

    A pid is followed from the time when it holds a record's lock, so it is not another process yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followed: dict[int, tuple[int, Ending]] = {}  # by pid, with its descriptor
        self._poll: select.epoll | None = None

    def follow(self, pid: int) -> Ending | None:
        """Wait for the end of ``pid``, unless it is followed already; ``None`` if that fails."""
        with self._lock:
            if (known := self._followed.get(pid)) is not None:
                return known[1]
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:  # it is gone, no descriptor is free, or the kernel is older than 5.3
                return None
            try:
                poll = self._poll or self._start()
                poll.register(descriptor, select.EPOLLIN)
            except (OSError, RuntimeError):  # no more descriptors or threads
                os.close(descriptor)
                return None
            self._followed[pid] = descriptor, Ending(pid)
            return self._followed[pid][1]

    def _start(self) -> select.epoll:
        poll = select.epoll()
        try:
            args = (poll,)
            threading.Thread(
                target=self._wait, args=args, name="warmwatch-exits", daemon=True
            ).start()
        except RuntimeError:
            poll.close()
            raise
        self._poll = poll
        return poll

    def _wait(self, poll: select.epoll) -> None:
        while True:
            for descriptor, _ in poll.poll():
                self._take(poll, descriptor, time.monotonic_ns())

    def _take(self, poll: select.epoll, descriptor: int, now_ns: int) -> None:
        with self._lock:
            ending = next(of for one, of in self._followed.values() if one == descriptor)
        status = _status_of(descriptor, ending.pid)
        with self._lock:
            poll.unregister(descriptor)
            del self._followed[ending.pid]
            if status is not None and status & _SIGNAL:
                ending.death = Death(signal=status & _SIGNAL, at_ns=now_ns)
        os.close(descriptor)


def _status_of(descriptor: int, pid: int) -> int | None:
    """The exit status of a process that has just ended; ``None`` if it may not be read.

    It is a zombie until its parent reaps it, and its descriptor has the status from then on. So the
    descriptor is read again where the parent reaps it between the two.
    """
    for read in (_reaped_status, _zombie_status, _reaped_status):
        if (status := read(descriptor, pid)) is not None:
            return status
    return None


def _reaped_status(descriptor: int, pid: int) -> int | None:  # noqa: ARG001 - as _zombie_status
    info = bytearray(_INFO.pack(_INFO_EXIT, 0))
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:  # the kernel is older than 6.13
        return None
    known, status = _INFO.unpack(info)
    return int(status) if known & _INFO_EXIT else None


def _zombie_status(descriptor: int, pid: int) -> int | None:  # noqa: ARG001 - as _reaped_status
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[_EXIT_STATUS]) if fields[0] == "Z" else None
