"""One record's folder, opened for one poll: its owner, its slot, its exit status."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import struct
import threading
import time
from types import TracebackType

from msgspec import Struct

from warmwatch.shared import record
from warmwatch.shared.record import CompileCounts, RecordError, Slot, TornError
from warmwatch.shared.record.facts import flatten
from warmwatch_monitor.model.records import Death
from warmwatch_monitor.sources import proc

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

    ``death``: how it ended; ``None`` if it lives, or the kernel does not show that here.
    ``at_ns``: when it ended; 0 while it lives.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.at_ns = 0
        self.death: Death | None = None


class ExitWatch:
    """Waits for the ends of processes, in a thread that ends with the last of them.

    A pid is followed from the time when it holds a record's lock, so it is not another process yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followed: dict[int, tuple[int, Ending]] = {}  # by pid, with its descriptor
        self._poll: select.epoll | None = None

    def follow(self, pid: int) -> Ending | None:
        """Wait for the end of ``pid``, unless it is followed already; ``None`` if that fails."""
        with self._lock:
            if (pair := self._followed.get(pid)) is not None:
                return pair[1]
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
        threading.Thread(
            target=self._wait, args=(poll,), name="warmwatch-exits", daemon=True
        ).start()
        self._poll = poll
        return poll

    def _wait(self, poll: select.epoll) -> None:
        while True:
            for descriptor, events in poll.poll():
                reaped = bool(events & select.EPOLLHUP)
                self._take(poll, descriptor, reaped, time.monotonic_ns())
            with self._lock:
                if not self._followed:  # who comes later gets another thread
                    self._poll = None
                    poll.close()
                    return

    def _take(self, poll: select.epoll, descriptor: int, reaped: bool, now_ns: int) -> None:
        """Read the status of a process that has ended, or wait until its parent has reaped it.

        Its descriptor has the status from then on. Before, only the zombie has it, and shows 0 to
        a reader of another user. A kernel that has the call reports the reaping, too (EPOLLHUP).
        """
        with self._lock:
            ending = next(
                followed for number, followed in self._followed.values() if number == descriptor
            )
        ending.at_ns = ending.at_ns or now_ns
        info = _exit_info(descriptor)
        status = info.status if info and info.known else _zombie_status(ending.pid) or 0
        if info and not (status or reaped or info.known):
            poll.modify(descriptor, 0)
            return
        with self._lock:
            poll.unregister(descriptor)
            del self._followed[ending.pid]
            # a zombie shows 0 also to those who may not read its status
            if status or (info and info.known):
                code = 0 if status & _SIGNAL else status >> 8 & 0xFF
                ending.death = Death(at_ns=ending.at_ns, signal=status & _SIGNAL, exit_code=code)
        os.close(descriptor)


class _ExitInfo(Struct, frozen=True):
    """``status`` as wait(2) returns it, if it is ``known``: once the process was reaped."""

    known: bool
    status: int


def _exit_info(descriptor: int) -> _ExitInfo | None:
    """What a pidfd reports of the end of its process; ``None``: the kernel is older than 6.13."""
    info = bytearray(_INFO.pack(_INFO_EXIT, 0))
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError as error:
        # a process that was reaped, of a kernel before 6.15
        return _ExitInfo(False, 0) if error.errno == errno.ESRCH else None
    fields, status = _INFO.unpack(info)
    return _ExitInfo(bool(fields & _INFO_EXIT), status)


def _zombie_status(pid: int) -> int | None:
    """The exit status of a process until it is reaped; 0 if it may not be read."""
    try:
        fields = proc.text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[_EXIT_STATUS]) if fields[0] == "Z" else None


# A read finds both places of a block half written only if the writer stored twice during the read.
# That takes a reader that was delayed in the middle, so the next try is nearly always complete.
_TRIES = 20
_AGREEING_READS = 8  # at most, until two in a row agree
_LARGEST_EPOCH = 2**62  # nanoseconds since 1970, in the year 2116
_LARGEST = 2**59  # nanoseconds of uptime, or steps: both take decades


class SlotReading(Struct, frozen=True, kw_only=True):
    """One poll of a slot.

    Attributes:
        slot: its numbers; the last good ones if a block stays half written.
        moved: they differ from the previous poll.
        held: a process holds the lock. pid: its pid here, ``None`` if this pid namespace cannot
            see it. inode: the file's. owner: the uid of its owner.
        modified: its mtime, seconds since the epoch.
    """

    slot: Slot
    moved: bool
    held: bool
    pid: int | None
    inode: int
    owner: int
    modified: float


class SlotFile:
    """One slot, with its last image so that unchanged parts are not unpacked again.

    The file is opened for each poll and closed after it: no descriptor outlives the poll, so a
    deleted folder or five hundred records hold none. The lock is checked *before* the bytes are
    read: if it is free, the bytes are the final ones of a process that is gone.

    The hot words are read before the sealed blocks, by a call of their own. A single copy may go in
    any order, and the words must never be newer than the blocks (see ``warmwatch.shared.record``).
    """

    def __init__(self) -> None:
        self._hot = self._blocks = b""
        self._slot: Slot | None = None
        self._forgotten: int | None = None

    def read(self, folder: Folder) -> SlotReading:
        """Read it.

        Raises:
            RecordError: foreign, torn, of another version, or with another owner than the folder.
            OSError: it cannot be opened or read.
        """
        descriptor, status = folder.open(record.SLOT)
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
            pid = record.lock_holder(answer)
            slot, moved = self._read(descriptor)
            return SlotReading(
                slot=slot,
                moved=moved,
                held=pid is not None,
                pid=pid or None,
                inode=status.st_ino,
                owner=status.st_uid,
                modified=status.st_mtime,
            )
        finally:
            os.close(descriptor)

    def forget(self) -> None:
        """Forget the last image, except for what detects a change."""
        if self._slot is not None:
            self._forgotten = hash((self._hot, self._blocks))
            self._hot, self._blocks, self._slot = b"", b"", None

    def is_as_forgotten(self, folder: Folder) -> bool:
        """Whether a forgotten slot has not changed, and no process holds its lock.

        Costs a fifth of :meth:`read`, because nothing is unpacked. Raises as :meth:`read`.
        """
        descriptor, _ = folder.open(record.SLOT)
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
            if record.lock_holder(answer) is not None:
                return False
            return self._forgotten == hash(_image(descriptor))
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> tuple[Slot, bool]:
        """Its numbers, and whether they changed."""
        torn: TornError | None = None
        for _ in range(_TRIES):
            hot, blocks = _image(descriptor)
            item = self._slot if blocks == self._blocks else None
            if item is not None and hot == self._hot:
                return item, False
            same = item if self._has_header(hot) else None
            try:
                if same is not None:
                    slot = record.with_hot_words(same, hot, self._compile_bins(hot))
                else:
                    slot = record.unpack(hot + blocks)
            except TornError as error:
                torn = error
                continue
            _check(slot, same)
            moved = self._slot is not None or self._forgotten not in (None, hash((hot, blocks)))
            self._hot, self._blocks, self._slot, self._forgotten = hot, blocks, slot, None
            return slot, moved
        if self._slot is None:
            raise torn or RecordError("torn record")
        return self._slot, False

    def _has_header(self, hot: bytes) -> bool:
        """Whether ``hot`` has the header of the last image, and is complete."""
        header = slice(record.STEPS_OFFSET)
        return hot[header] == self._hot[header] and len(hot) == len(self._hot)

    def _compile_bins(self, hot: bytes) -> tuple[int, ...] | None:
        """The rarely changing histogram, if ``hot`` has the same one as the last image."""
        at = record.COMPILE_BINS_OFFSET
        if self._slot is None or hot[at:] != self._hot[at:]:
            return None
        return self._slot.compile_bins


def _image(descriptor: int) -> tuple[bytes, bytes]:
    """The hot words, and then the sealed blocks."""
    hot = _hot_words(descriptor)
    return hot, os.pread(descriptor, record.SIZE - record.HOT_END, record.HOT_END)


def _hot_words(descriptor: int) -> bytes:
    """The hot words, read until two reads agree.

    A step stores each word whole, but the kernel may copy it byte by byte (``rep movsb`` after an
    interrupt), so that one read may hold half of a store. A training steps less often than this
    reads; of one that does not, the last read counts, since an old one would be as wrong.
    """
    hot = os.pread(descriptor, record.HOT_END, 0)
    for _ in range(_AGREEING_READS):
        before, hot = hot, os.pread(descriptor, record.HOT_END, 0)
        if hot == before:
            break
    return hot


def _check(slot: Slot, before: Slot | None) -> None:
    """Reject values that no agent writes, before other code sees them.

    Args:
        before: the last good one, if it has the same header and blocks: they were checked then.
    """
    compile = slot.compile
    _check_numbers(max(slot.steps) < _LARGEST, "steps'")
    if before is not None:
        return
    header = slot.header._replace(attached_epoch_ns=0)
    sane = slot.header.attached_epoch_ns < _LARGEST_EPOCH
    # an agent leaves these two at the largest word instead of overflowing
    counts = compile._replace(tokens_before=0, samples_before=0)
    _check_numbers(sane and max(header) < _LARGEST, "header's")
    _check_numbers(max(flatten(counts)) < _LARGEST, "compile block's")
    if not slot.header.warm_steps:
        raise RecordError("torn record: it requires no clean steps before it is warm")
    codes = (
        (compile.active_phase, 1 + len(record.PHASES)),
        (compile.end_code, len(record.ENDS)),
        (compile.disabled, len(record.DISABLED)),
        (compile.progress_of, 1 + len(record.PROGRESS)),
        (compile.settled_by, len(record.SETTLED_BY)),
    )
    if any(code >= number for code, number in codes):
        raise RecordError("torn record: a code of its phase or its end is unknown")


def _check_numbers(sane: bool, whose: str) -> None:
    if not sane:
        raise RecordError(f"torn record: one of its {whose} numbers is too large to be a count")
