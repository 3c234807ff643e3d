"""Memory that a process may still get: the limit of its cgroup or of the machine, and what is used.

Both versions of cgroups are read. A group counts with all its parents: the one with the least room
decides. Pages of files that the kernel can drop do not count as used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from warmwatch_monitor.model import WorkersMemory
from warmwatch_monitor.sources import proc

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


def memory_group(pid: int | str, root: str = proc.PROC, cgroups: str = CGROUPS) -> Group | None:
    """The memory cgroup of a process; ``None`` if it has none, or if that cannot be read."""
    try:
        lines = proc.text(f"{root}/{pid}/cgroup").splitlines()
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
    if (memory := proc.machine_memory()) is not None:
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
        return int(proc.text(file))
    except (OSError, ValueError):
        return None


def _stat(file: str, name: str) -> int:
    try:
        pairs = (line.split() for line in proc.text(file).splitlines())
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
        for line in proc.text(f"{proc.PROC}/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:  # another user's process, or a kernel without that file
        return proc.memory(pid)[1]
    except OSError:
        return 0
