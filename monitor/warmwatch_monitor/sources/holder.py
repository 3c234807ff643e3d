"""The process that held a slot's lock, asked again after it let go of it: is it still there?

A process loses its lock when any code in it closes any descriptor of the slot, as a copy of the
record's folder does. It is the same process as long as its pid has the start time of before; it is
on its way out once the kernel says so, which for a process with GPUs can be a second before the pid
is gone; and it speaks no more for the record where it runs another program since, which has not the
slot open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from warmwatch import record

_EXITING = 0x4  # PF_EXITING in the flags of /proc/PID/stat
_STATE, _FLAGS, _STARTED = 0, 6, 19  # fields after the name, see proc_pid_stat(5)


class Presence(Enum):
    """What is known of a process that no longer holds the lock."""

    THERE = "there"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process by its pid here and its start in clock ticks since the boot."""

    pid: int
    started: int


def holder(pid: int, proc: Path = Path("/proc")) -> Holder | None:
    """The process that has ``pid`` now; ``None`` where it cannot be asked."""
    fields = _fields(pid, proc)
    return Holder(pid=pid, started=int(fields[_STARTED])) if fields else None


def presence(known: Holder, inode: int, proc: Path = Path("/proc")) -> Presence:
    """Whether ``known`` is still there, with the file ``inode`` open."""
    fields = _fields(known.pid, proc)
    if not fields or int(fields[_STARTED]) != known.started:
        return Presence.GONE
    if fields[_STATE] in "ZX" or int(fields[_FLAGS]) & _EXITING:
        return Presence.GONE
    return Presence.UNKNOWN if _has_open(known.pid, inode, proc) is False else Presence.THERE


def writer(pid: int, inode: int, proc: Path = Path("/proc")) -> Holder | None:
    """The process ``pid``, where it is sure that it writes the slot ``inode``; else ``None``.

    For a reader that never saw the lock held: the pid is the one that the record names, which in
    another pid namespace is somebody else's.
    """
    return holder(pid, proc) if pid and _has_open(pid, inode, proc) else None


def _fields(pid: int, proc: Path) -> list[str]:
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _has_open(pid: int, inode: int, proc: Path) -> bool | None:
    """Whether it has the file open or mapped; ``None`` where another user's may not be asked."""
    process = proc / str(pid)
    try:
        if any(_inode(link) == inode for link in (process / "fd").iterdir()):
            return True
        return any(_maps(line, inode) for line in (process / "maps").read_text().splitlines())
    except OSError:
        return None


def _maps(line: str, inode: int) -> bool:
    """Whether a line of /proc/PID/maps is of the slot ``inode``: it outlives its descriptor."""
    fields = line.split(maxsplit=5)
    return len(fields) == 6 and fields[4] == str(inode) and record.SLOT in fields[5]


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:  # closed meanwhile
        return None
