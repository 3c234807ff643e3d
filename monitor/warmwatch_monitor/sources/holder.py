"""The process that held a slot's lock, asked again after it let go of it: is it still there?

A process loses its lock when any code in it closes any descriptor of the slot, as a copy of the
record's folder does. It is the same process as long as its pid has the start time of before; it is
on its way out once the kernel says so, which for a process with GPUs can be a second before the pid
is gone; and it speaks no more for the record where it runs another program since, which has not the
slot open. Of another user's process one may not ask what it has open, but may see that it runs
another program: its memory is a new one, so the peak of it has fallen, or its code is of another
size.

A process speaks for its own user's records alone: who holds the lock of somebody else's keeps
nothing alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from msgspec import Struct

from warmwatch import record

_EXITING = 0x4  # PF_EXITING in the flags of /proc/PID/stat
_STATE, _FLAGS, _STARTED = 0, 6, 19  # fields after the name, see proc_pid_stat(5)


class Presence(Enum):
    """What is known of a process that no longer holds the lock."""

    THERE = "there"
    GONE = "gone"
    UNKNOWN = "unknown"


class Holder(Struct, frozen=True, kw_only=True):
    """A process by its pid here and its start in clock ticks since the boot, as it was then.

    Attributes:
        uids: of its user, the real one and those that it acts as; none where that is not known.
        pids: its pids in the pid namespaces that it is in, this one's first.
        peak, code: the most memory that it had mapped, and the size of its program's code, in kB.
    """

    pid: int
    started: int
    uids: frozenset[int] = frozenset()
    pids: tuple[int, ...] = ()
    peak: int = 0
    code: int = 0

    def speaks_for(self, owner: int, pid: int | None = None) -> bool:
        """Whether a record of the user ``owner`` can be this process's, as far as one can tell.

        ``pid``: the record's; a process that changed its user since is still the same one.
        """
        return not self.uids or bool(self.uids & {0, owner}) or pid in self.pids


def holder(pid: int, proc: Path = Path("/proc")) -> Holder | None:
    """The process that has ``pid`` now; ``None`` where it cannot be asked."""
    fields = _fields(pid, proc)
    if not fields:
        return None
    told = _status(pid, proc)
    return Holder(
        pid=pid,
        started=int(fields[_STARTED]),
        uids=frozenset(_numbers(told, "Uid")),
        pids=_numbers(told, "NSpid"),
        peak=_number(told, "VmPeak"),
        code=_number(told, "VmExe"),
    )


def presence(known: Holder, inode: int, proc: Path = Path("/proc")) -> Presence:
    """Whether ``known`` is still there, with the file ``inode`` open."""
    fields = _fields(known.pid, proc)
    if not fields or int(fields[_STARTED]) != known.started:
        return Presence.GONE
    if fields[_STATE] in "ZX" or int(fields[_FLAGS]) & _EXITING:
        return Presence.GONE
    if _runs_another_program(known, _status(known.pid, proc)):
        return Presence.GONE
    return Presence.UNKNOWN if _has_open(known.pid, inode, proc) is False else Presence.THERE


def writer(pid: int, inode: int, owner: int, proc: Path = Path("/proc")) -> Holder | None:
    """The process ``pid``, where it surely writes ``owner``'s slot ``inode``; else ``None``.

    For a reader that never saw the lock held: the pid is the one that the record names, which in
    another pid namespace is somebody else's, and in a forged record anybody's.
    """
    found = holder(pid, proc) if pid and _has_open(pid, inode, proc) else None
    return found if found and found.speaks_for(owner) else None


def _runs_another_program(known: Holder, told: Mapping[str, str]) -> bool:
    peak, code = _number(told, "VmPeak"), _number(told, "VmExe")
    return 0 < peak < known.peak or 0 < code != known.code > 0


def _status(pid: int, proc: Path) -> Mapping[str, str]:
    """What /proc/PID/status tells everybody, by name; nothing of a process that is not there."""
    try:
        lines = (proc / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


def _numbers(told: Mapping[str, str], name: str) -> tuple[int, ...]:
    return tuple(int(word) for word in told.get(name, "").split() if word.isdecimal())


def _number(told: Mapping[str, str], name: str) -> int:
    """0 where it is not told."""
    return next(iter(_numbers(told, name)), 0)


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
