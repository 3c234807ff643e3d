"""Whether the kernel killed a process for lack of memory, from its cgroup.

``memory.events`` of cgroup v2, and ``memory.oom_control`` of v1 where that has the memory, count
what the OOM killer killed in a group. It is read while a process lives; where the count has grown
when the process is gone, that is what ended it, as well as anybody can know from outside. A group
that went with its process, or cannot be read, tells nothing; nor does one of whose processes more
went than were killed (the launcher ends the others): which of them it was, nobody can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

_REMEMBERED = 1_000


class OomWatch:
    """Follows processes; ``proc`` and ``cgroups`` are where the kernel shows both."""

    def __init__(
        self, *, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
    ) -> None:
        self._proc, self._cgroups = proc, cgroups
        self._followed: dict[int, _Followed] = {}
        self._gone: dict[int, bool] = {}

    def follow(self, pids: Iterable[int]) -> Mapping[int, bool]:
        """Of the processes that were followed and are gone, whether each was killed so."""
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
        """The file that counts for a process; ``None`` where there is no cgroup for it."""
        try:
            lines = (self._proc / str(pid) / "cgroup").read_text().splitlines()
        except (OSError, ValueError):
            return None
        for line in lines:  # hierarchy:controllers:path, see cgroups(7)
            controllers, _, path = line.partition(":")[2].partition(":")
            if "memory" in controllers.split(","):
                return self._cgroups / "memory" / path.lstrip("/") / "memory.oom_control"
        paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
        return self._cgroups / paths[0] / "memory.events" if paths else None


class _Followed:
    """One process: how many its group had lost at the last two looks.

    Two, for the count grows a moment before the process is gone: the last look may have seen that.
    """

    def __init__(self, events: Path | None) -> None:
        self.events = events
        self._counts: tuple[int | None, ...] = ()

    def look(self) -> None:
        self._counts = (*self._counts[-1:], self._read())

    def killed_since(self) -> int | None:
        """How many were killed in its group about the time it went; to be asked when it is gone."""
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
