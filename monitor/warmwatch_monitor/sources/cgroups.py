"""What the cgroups of a process limit, count and freeze. See cgroups(7).

Both versions are read. A group counts with all its parents: of several limits, the one with the
least room decides. In a container the kernel may name a group of the host, which does not exist
there: then only the mounted root has files, and is the container's group.

The memory that a process may still get is that of its group or of the machine. Pages of files that
the kernel can drop do not count as used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from warmwatch_monitor.figures.rank import WorkersMemory
from warmwatch_monitor.sources import proc

MOUNT = "/sys/fs/cgroup"
_UNLIMITED = 2**60  # of version 1, which has a number for it
_WORTH_READING = 0.75  # of the limit: below it the workers are no concern


class Group(Struct, frozen=True):
    """A cgroup: its folder, the folder of all groups, and whether it is of version 1."""

    folder: str
    mount: str
    first: bool

    @property
    def folders(self) -> Iterator[str]:
        """Its folder and those of its parents."""
        folder = self.folder
        while folder.startswith(self.mount):
            yield folder
            folder = folder.rpartition("/")[0]


def _groups(pid: int | str, controller: str) -> Iterator[Group]:
    """Those of a process that the controller may use, without any outside of this container."""
    with contextlib.suppress(OSError):
        for line in proc.text(f"{proc.PROC}/{pid}/cgroup").splitlines():
            controllers, _, path = line.partition(":")[2].partition(":")
            if "/.." not in path and controller in (controllers or controller).split(","):
                mount = f"{MOUNT}/{controller}" if controllers else MOUNT
                yield Group(f"{mount}{path}".rstrip("/"), mount, first=bool(controllers))


def cpu_quota(pid: int | str) -> float | None:
    """How many processors a process may use in parallel; ``None`` without a limit."""
    quotas = []
    for folder in (folder for group in _groups(pid, "cpu") for folder in group.folders):
        words = " ".join(_lines(f"{folder}/cpu.max")).split()  # QUOTA PERIOD, or max PERIOD
        words = words or [
            *_lines(f"{folder}/cpu.cfs_quota_us"),
            *_lines(f"{folder}/cpu.cfs_period_us"),
        ]
        if len(words) == 2 and all(map(str.isdecimal, words)) and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


# by version: the file that shows the state of a group, with those of its parents, and what it has
# if frozen; the file with the group's own state; what writes it
_FREEZING = {
    False: ("cgroup.events", "frozen 1", "cgroup.freeze", "0 > {}/cgroup.freeze"),
    True: ("freezer.state", "FROZEN", "freezer.self_freezing", "THAWED > {}/freezer.state"),
}


def thaw(pid: int) -> str | None:
    """What thaws the frozen cgroup of ``pid``, for ``echo``; ``None`` if none is seen frozen.

    ``docker pause`` and some schedulers freeze. A frozen process is in no state of its own in
    ``/proc``: it seems to sleep.
    """
    for group in _groups(pid, "freezer"):
        shown, frozen, own, thawing = _FREEZING[group.first]
        folder = group.folder.removeprefix(MOUNT)
        beside = replace(group, folder=f"{MOUNT}/unified{folder}", mount=f"{MOUNT}/unified")
        # beside those of version 1, version 2 has a folder of its own
        for each in (group,) if group.first else (group, beside):
            if frozen in _lines(f"{each.folder}/{shown}"):
                itself = (at for at in each.folders if "1" in _lines(f"{at}/{own}"))
                return thawing.format(next(itself, each.folder))
    return None


class Use(Struct, frozen=True):
    """Used bytes and their limit. ``cgroup``: whether a cgroup sets it."""

    used: int
    limit: int
    cgroup: bool


def memory_group(pid: int | str) -> Group | None:
    """The memory cgroup of a process; ``None`` if it has none, or if that cannot be read."""
    return min(_groups(pid, "memory"), key=lambda group: not group.first, default=None)


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
    for folder in group.folders:
        limit, used = _number(f"{folder}/{limits}"), _number(f"{folder}/{current}")
        if limit and limit < _UNLIMITED and used is not None:
            unused = counted_in(f"{folder}/memory.stat", inactive) or 0
            yield Use(max(0, used - unused), limit, cgroup=True)


def _number(file: str) -> int | None:
    """``None`` also for ``max``, which is no limit."""
    text = "".join(_lines(file))
    return int(text) if text.isdecimal() else None


def counted_in(file: str, name: str) -> int | None:
    """The count of that name in a file of counts; ``None`` if it has none."""
    pairs = (line.split() for line in _lines(file))
    counts = (pair[1] for pair in pairs if len(pair) == 2 and pair[0] == name)
    return next((int(count) for count in counts if count.isdecimal()), None)


def _lines(file: str) -> list[str]:
    """Empty if it cannot be read: a group may be gone, or its controller be off."""
    try:
        return proc.text(file).splitlines()
    except OSError:
        return []


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
