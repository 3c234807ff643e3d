"""Processes and the machine, as Linux has them in ``/proc``. See proc(5).

Functions of a process raise OSError if it is gone or may not be read. Nothing is cached: a pid may
belong to another process at the next call.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

PROC = "/proc"
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_PART = 1 << 14  # bytes
_EXITING = 0x4  # PF_EXITING
_LONGEST_NAME = 15  # characters of a name in `stat`


class Stat(Struct, frozen=True):
    """A process's ``stat``.

    Attributes:
        name: of its program, cut off after 15 characters.
        state: a letter: ``T`` and ``t`` mean stopped.
        cpu_seconds: of its own threads. waited_seconds: of the children that it has waited for.
        started: ticks of the clock since the machine was started, with its pid an identity.
        exits: it is on its way out, which takes a while with GPUs, or is a zombie.
    """

    name: str
    state: str
    parent: int
    cpu_seconds: float
    waited_seconds: float
    threads: int
    started: int
    exits: bool

    @property
    def started_seconds(self) -> float:
        """Since the machine was started."""
        return self.started / _TICKS

    @property
    def stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it."""
        return self.state in "Tt"


def stat(pid: int | str) -> Stat:
    """Name, state, parent, CPU time and threads of a process, or of its thread ``7/task/8``."""
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
        started=int(fields[19]),
        exits=fields[0] in "ZX" or bool(int(fields[6]) & _EXITING),
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


def status(pid: int) -> Mapping[str, str]:
    """The public content of a process's ``status``, by name; empty if the process is gone."""
    try:
        lines = text(f"{PROC}/{pid}/status").splitlines()
    except OSError:
        return {}
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


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


def threads(pid: int) -> list[int]:
    """The threads of a process, in ascending order."""
    return sorted(map(int, os.listdir(f"{PROC}/{pid}/task")))


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


class Mount(Struct, frozen=True):
    """A mounted filesystem: its type, and the options of the mount; empty if unknown.

    ``read_only``: nobody can write to it, whatever the mount; a monitor's own may be read-only.
    """

    kind: str = ""
    options: Sequence[str] = ()
    read_only: bool = False


def mount_of(path: str) -> Mount:
    """Where a path without links is: the last mount at the nearest mount point above it."""
    best, mount = "", Mount()
    with contextlib.suppress(OSError):
        for line in text(f"{PROC}/self/mountinfo").splitlines():
            before, _, after = line.partition(" - ")
            _, _, _, _, point, options, *_ = before.split(" ")
            for octal, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                point = point.replace(octal, sign)
            if f"{path}/".startswith(f"{point.rstrip('/')}/") and len(point) >= len(best):
                kind, _, own = after.split(" ", 2)
                best, mount = point, Mount(kind, options.split(","), "ro" in own.split(","))
    return mount


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
