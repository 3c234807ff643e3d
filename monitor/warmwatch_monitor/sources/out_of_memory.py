"""Whether the kernel killed a process for lack of memory, from its cgroup.

``memory.events`` of cgroup v2, and ``memory.oom_control`` of v1 if that has the memory, count the
OOM killer's kills in a group. The count is read while a process lives. If it has grown when the
process is gone, that is the likely cause. Nothing is known if the group disappeared with its
process or cannot be read. The same holds if more of its processes ended than were killed (the
launcher ends the others): the count does not show which one was killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from warmwatch_monitor.sources.memory_limits import memory_group

_REMEMBERED = 1_000


class OomWatch:
    """Follows processes; ``proc`` and ``cgroups`` are the kernel's directories for both."""

    def __init__(
        self, *, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
    ) -> None:
        self._proc, self._cgroups = proc, cgroups
        self._followed: dict[int, _Followed] = {}
        self._gone: dict[int, bool] = {}

    def follow(self, pids: Iterable[int]) -> Mapping[int, bool]:
        """For the followed processes that are gone, whether the OOM killer ended each."""
        known, self._followed = self._followed, {}
        for pid in pids:
            self._gone.pop(pid, None)
            followed = known.pop(pid) if pid in known else _Followed(self._events(pid))
            followed.look()
            self._followed[pid] = followed
        went = Counter(followed.events for followed in known.values())
        for pid, followed in known.items():
            killed = followed.killed_since()
            if killed is not None and (not killed or killed >= went[followed.events]):
                self._gone[pid] = killed > 0
        while len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        return dict(self._gone)

    def _events(self, pid: int) -> Path | None:
        """The file that counts for a process; ``None`` if it has no cgroup."""
        group = memory_group(pid, self._proc, self._cgroups)
        if group is None:
            return None
        return group.folder / ("memory.oom_control" if group.first else "memory.events")


class _Followed:
    """One process, with the kills in its group at the last two polls.

    Two, because the count grows just before the process is gone: the last poll may have seen that.
    """

    def __init__(self, events: Path | None) -> None:
        self.events = events
        self._counts: tuple[int | None, ...] = ()

    def look(self) -> None:
        self._counts = (*self._counts[-1:], self._read())

    def killed_since(self) -> int | None:
        """The kills in its group about the time it ended; call it when it is gone."""
        now, before = self._read(), [count for count in self._counts if count is not None]
        return max(0, now - min(before)) if now is not None and before else None

    def _read(self) -> int | None:
        if self.events is None:
            return None
        try:
            pairs = (line.split() for line in self.events.read_text().splitlines())
            return next((int(count) for name, count in pairs if name == "oom_kill"), None)
        except (OSError, ValueError):
            return None
