"""Memory that a process may still get: the limit of its cgroup or of the machine, and what is used.

Both versions of cgroups are read. A group counts with all its parents: the one with the least room
decides. Pages of files that the kernel can drop do not count as used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from warmwatch_monitor.model import WorkersMemory

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_UNLIMITED = 2**60  # of version 1, which has a number for it
_WORTH_READING = 0.75  # of the limit: below it the workers are no concern


class Group(NamedTuple):
    """A memory cgroup: its folder, the folder of all groups, and whether it is version 1."""

    folder: Path
    root: Path
    first: bool


class Use(NamedTuple):
    """Used bytes and their limit. ``cgroup``: whether a cgroup sets it."""

    used: int
    limit: int
    cgroup: bool


def memory_group(pid: int | str, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> Group | None:
    """The memory cgroup of a process; ``None`` if it has none, or if that cannot be read."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:  # hierarchy:controllers:path, see cgroups(7)
        controllers, _, path = line.partition(":")[2].partition(":")
        if "memory" in controllers.split(","):
            root = cgroups / "memory"
            return Group(root / path.lstrip("/"), root, first=True)
    paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    if not paths or paths[0].startswith(".."):
        return None  # outside of the groups that are mounted in this container
    return Group(cgroups / paths[0], cgroups, first=False)


def full_first(group: Group | None) -> Use | None:
    """The limit of ``group`` or one of its parents with the least bytes left; ``None`` if none."""
    return min(_uses(group), key=lambda one: one.limit - one.used, default=None)


def least_room(group: Group | None) -> Use:
    """The limit that is reached first: of the machine, or of ``group`` or one of its parents."""
    memory = psutil.virtual_memory()
    machine = Use(memory.total - memory.available, memory.total, cgroup=False)
    return max([machine, *_uses(group)], key=lambda one: one.used / one.limit)


def _uses(group: Group | None) -> Iterator[Use]:
    if group is None:
        return
    limits, current, inactive = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        if group.first
        else ("memory.max", "memory.current", "inactive_file")
    )
    for folder in (group.folder, *group.folder.parents):
        if not folder.is_relative_to(group.root):
            return
        limit = _number(folder / limits)
        if not limit or limit >= _UNLIMITED:
            continue
        if (used := _number(folder / current)) is not None:
            yield Use(max(0, used - _stat(folder / "memory.stat", inactive)), limit, cgroup=True)


def _number(file: Path) -> int | None:
    """``None`` also for ``max``, which is no limit."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _stat(file: Path, name: str) -> int:
    try:
        pairs = (line.split() for line in file.read_text().splitlines())
        return next((int(pair[1]) for pair in pairs if pair[:1] == [name]), 0)
    except (OSError, ValueError, IndexError):
        return 0


def of_workers(
    workers: int, pids: Iterable[int], group: Group | None, proc: Path = _PROC
) -> WorkersMemory | None:
    """Memory of compile workers, which are the processes ``pids``; ``None`` if there is enough."""
    use = least_room(group)
    if not workers or use.used < _WORTH_READING * use.limit:
        return None
    return WorkersMemory(
        workers=workers,
        workers_bytes=sum(_own_bytes(pid, proc) for pid in pids),
        used_bytes=use.used,
        limit_bytes=use.limit,
        cgroup=use.cgroup,
    )


def _own_bytes(pid: int, proc: Path) -> int:
    """Resident memory of a process, with its share of shared pages; 0 if it is gone."""
    try:
        for line in (proc / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:  # another user's process, or a kernel without that file
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0
    return int(memory.rss - getattr(memory, "shared", 0))
