"""Processes and the machine, as Linux has them in ``/proc``. See proc(5).

Functions of a process raise OSError if it is gone or may not be read. Nothing is cached: a pid may
belong to another process at the next call.

The memory that a process may still get is that of its cgroup or of the machine. Both versions of
cgroups are read. A group counts with all its parents: the one with the least room decides. Pages of
files that the kernel can drop do not count as used.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from warmwatch_monitor.figures.rank import WorkersMemory

PROC = "/proc"
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_PART = 1 << 14  # bytes
_LONGEST_NAME = 15  # characters of a name in `stat`


class Stat(Struct, frozen=True):
    """A process's ``stat``.

    Attributes:
        name: of its program, cut off after 15 characters.
        state: a letter: ``T`` and ``t`` mean stopped.
        cpu_seconds: of its own threads. waited_seconds: of the children that it has waited for.
        started_seconds: since the machine was started.
    """

    name: str
    state: str
    parent: int
    cpu_seconds: float
    waited_seconds: float
    threads: int
    started_seconds: float

    @property
    def stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it."""
        return self.state in "Tt"


def stat(pid: int) -> Stat:
    """Name, state, parent, CPU time and threads of a process."""
    name, _, rest = text(f"{PROC}/{pid}/stat").rpartition(")")  # a name may have one too
    fields = rest.split()
    if len(fields) < 20:
        raise ProcessLookupError
    user, system, waited_user, waited_system = map(int, fields[11:15])
    return Stat(
        name=name.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        cpu_seconds=(user + system) / _TICKS,
        waited_seconds=(waited_user + waited_system) / _TICKS,
        threads=int(fields[17]),
        started_seconds=int(fields[19]) / _TICKS,
    )


def whole_name(pid: int, name: str) -> str:
    """The name of a process's program, of which ``stat`` has the first characters only."""
    if len(name) < _LONGEST_NAME:
        return name
    sentence = command(pid)
    whole = os.path.basename(sentence[0]) if sentence else ""
    return whole if whole.startswith(name) else name


def memory(pid: int) -> tuple[int, int]:
    """Resident bytes of a process, and those of them that are not shared: no files, no ``shm``."""
    fields = text(f"{PROC}/{pid}/statm").split()
    if len(fields) < 3:
        raise ProcessLookupError
    resident, shared = int(fields[1]) * _PAGE, int(fields[2]) * _PAGE
    return resident, resident - shared


def queued_seconds(pid: int) -> float | None:
    """How long a process's main thread could run and had no CPU, since it began.

    ``None`` if it is not known, or the kernel was built without it.
    """
    try:
        _, queued, _ = map(int, text(f"{PROC}/{pid}/schedstat").split())
    except (OSError, ValueError):
        return None
    return queued / 1e9


def usable_cpus(pid: int) -> int | None:
    """The number of CPUs that a process may run on; ``None`` if it is not known."""
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return None


# Devices that a process without an accelerator has open.
_PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm")
_MOST_DESCRIPTORS = 2_000


def opens_devices(pid: int) -> bool | None:
    """Whether a process has a device file open, as every user of an accelerator has.

    ``None`` if that is not known.
    """
    folder = f"{PROC}/{pid}/fd"
    try:
        names = os.listdir(folder)
        if len(names) > _MOST_DESCRIPTORS:
            return None
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                target = os.readlink(f"{folder}/{name}")
                if target.startswith("/dev/") and not target[5:].startswith(_PLAIN_DEVICES):
                    return True
    except OSError:
        return None
    return False


def has_open(pid: int, name: str) -> bool:
    """Whether a process has a file of that name open."""
    folder = f"{PROC}/{pid}/fd"
    for descriptor in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if os.path.basename(os.readlink(f"{folder}/{descriptor}")) == name:
                return True
    return False


def command(pid: int) -> tuple[str, ...]:
    """The command line of a process; empty for a zombie and for a thread of the kernel."""
    sentence = text(f"{PROC}/{pid}/cmdline")
    parts = sentence.removesuffix("\0").split("\0")
    # a process that has set its title separates its words by spaces
    return tuple((parts[0].split(" ") if len(parts) == 1 else parts) if sentence else ())


def python_program(command: Sequence[str]) -> tuple[str, str]:
    """What a Python command runs: ``-m`` and the module, or no option and the script.

    ``-c`` without a name for code; neither for a prompt and for standard input.
    """
    rest = iter(command[1:])
    for part in rest:
        if not part.startswith("-"):
            return "", part
        if part == "-":
            break
        if part.startswith("--"):
            if part == "--check-hash-based-pycs":
                next(rest, "")
            continue
        # letters may share one dash, and the last one has a value: `-uc CODE`
        letters, letter, value = part[1:], "", ""
        for at, letter in enumerate(letters):
            if letter in "cmWX":
                value = letters[at + 1 :] or next(rest, "")
                break
        if letter in ("c", "m"):
            return f"-{letter}", value if letter == "m" else ""
    return "", ""


def directory(pid: int) -> str:
    """The name of a process's working directory, without its path."""
    return os.path.basename(os.readlink(f"{PROC}/{pid}/cwd"))


def pids() -> list[int]:
    """The processes that exist now, in ascending order."""
    return sorted(int(name) for name in os.listdir(PROC) if name.isdecimal())


def ancestors(pid: int) -> Iterator[int]:
    """The parent of a process, its parent, and so on, until one that may not be read."""
    parent = stat(pid).parent
    while parent:
        yield parent
        try:
            parent = stat(parent).parent
        except OSError:  # it has ended, or ``hidepid`` hides it
            return


def machine_memory() -> tuple[int, int] | None:
    """Bytes of memory, and those available without swapping; ``None`` if they are not known."""
    counts: dict[str, int] = {}
    for line in text(f"{PROC}/meminfo").splitlines():  # both are among its first lines
        name, _, value = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            counts[name] = 1024 * int(value.split()[0])
            if len(counts) == 2:  # in a container the total may be less than what is available
                return counts["MemTotal"], min(counts.values())
    return None


def stolen_seconds() -> float | None:
    """CPU time that the hypervisor gave to others, over all CPUs; ``None`` if it is not known."""
    fields = text(f"{PROC}/stat").partition("\n")[0].split()
    return int(fields[8]) / _TICKS if fields[:1] == ["cpu"] and len(fields) > 8 else None


def text(path: str) -> str:
    """The content of a file. Raises OSError."""
    parts = []
    descriptor = os.open(path, os.O_RDONLY)  # ``open`` makes six more system calls for each file
    try:
        while part := os.read(descriptor, _PART):
            parts.append(part)
    finally:
        os.close(descriptor)
    return os.fsdecode(b"".join(parts))


CGROUPS = "/sys/fs/cgroup"
_UNLIMITED = 2**60  # of version 1, which has a number for it
_WORTH_READING = 0.75  # of the limit: below it the workers are no concern


class Group(Struct, frozen=True):
    """A memory cgroup: its folder, the folder of all groups, and whether it is version 1."""

    folder: str
    root: str
    first: bool


class Use(Struct, frozen=True):
    """Used bytes and their limit. ``cgroup``: whether a cgroup sets it."""

    used: int
    limit: int
    cgroup: bool


def memory_group(pid: int | str, root: str = PROC, cgroups: str = CGROUPS) -> Group | None:
    """The memory cgroup of a process; ``None`` if it has none, or if that cannot be read."""
    try:
        lines = text(f"{root}/{pid}/cgroup").splitlines()
    except OSError:
        return None
    for line in lines:  # hierarchy:controllers:path, see cgroups(7)
        controllers, _, path = line.partition(":")[2].partition(":")
        if "memory" in controllers.split(","):
            folder = f"{cgroups}/memory"
            return Group(f"{folder}{path}".rstrip("/"), folder, first=True)
    paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    if not paths or paths[0].startswith(".."):
        return None  # outside of the groups that are mounted in this container
    return Group(f"{cgroups}/{paths[0]}".rstrip("/"), cgroups, first=False)


def full_first(group: Group | None) -> Use | None:
    """The limit of ``group`` or one of its parents with the least bytes left; ``None`` if none."""
    return min(_uses(group), key=lambda use: use.limit - use.used, default=None)


def least_room(group: Group | None) -> Use | None:
    """The limit that is reached first: of the machine, or of ``group`` or one of its parents.

    ``None`` if none is known.
    """
    uses = [*_uses(group)]
    if (memory := machine_memory()) is not None:
        total, available = memory
        uses.append(Use(total - available, total, cgroup=False))
    return max(uses, key=lambda use: use.used / use.limit, default=None)


def _uses(group: Group | None) -> Iterator[Use]:
    if group is None:
        return
    limits, current, inactive = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        if group.first
        else ("memory.max", "memory.current", "inactive_file")
    )
    folder = group.folder
    while folder.startswith(group.root):
        limit = _number(f"{folder}/{limits}")
        if limit and limit < _UNLIMITED and (used := _number(f"{folder}/{current}")) is not None:
            yield Use(max(0, used - _stat(f"{folder}/memory.stat", inactive)), limit, cgroup=True)
        folder = folder.rpartition("/")[0]


def _number(file: str) -> int | None:
    """``None`` also for ``max``, which is no limit."""
    try:
        return int(text(file))
    except (OSError, ValueError):
        return None


def _stat(file: str, name: str) -> int:
    try:
        pairs = (line.split() for line in text(file).splitlines())
        return next((int(pair[1]) for pair in pairs if pair[:1] == [name]), 0)
    except (OSError, ValueError, IndexError):
        return 0


def of_workers(workers: int, pids: Iterable[int], group: Group | None) -> WorkersMemory | None:
    """Memory of compile workers, which are the processes ``pids``; ``None`` if there is enough."""
    use = least_room(group)
    if not workers or use is None or use.used < _WORTH_READING * use.limit:
        return None
    return WorkersMemory(
        workers=workers,
        workers_bytes=sum(_own_bytes(pid) for pid in pids),
        used_bytes=use.used,
        limit_bytes=use.limit,
        cgroup=use.cgroup,
    )


def _own_bytes(pid: int) -> int:
    """Resident memory of a process, with its share of shared pages; 0 if it is gone."""
    try:
        for line in text(f"{PROC}/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:  # another user's process, or a kernel without that file
        return memory(pid)[1]
    except OSError:
        return 0
