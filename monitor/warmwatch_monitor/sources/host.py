"""The host source: memory, load, and each training's processes and workers.

Workers are judged by CPU time. A pool's existence shows nothing: it is idle through most of a
compilation, and its workers live on for a minute or for good. A process that cannot be read, or is
gone, is absent.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from msgspec import Struct, field

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.figures.machine import Compiler, Host
from warmwatch_monitor.figures.rank import WorkersMemory
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.sources import proc
from warmwatch_monitor.sources.cgroups import (
    Group,
    Use,
    counted_in,
    full_first,
    memory_group,
    of_workers,
    thaw,
)
from warmwatch_monitor.sources.processes import (
    Children,
    Compilers,
    cached,
    children_by_scan,
    children_files,
    compile_workers,
    with_descendants,
)

BUSY_WORKER_RATIO = 0.05  # of a core since the last poll; a waiting worker stays far below it
_WALK_NS = 2 * 10**9
_SCAN_NS = 10 * 10**9

Totals = Mapping[int, float]


class HostAndProcesses(Struct, frozen=True, kw_only=True):
    """The machine, and the readable training processes on it by pid.

    ``oom_killed``: for processes that are gone, whether the OOM killer ended them, if known.
    """

    machine: Host | None
    processes: Mapping[int, ProcessReading]
    oom_killed: Mapping[int, bool] = field(default_factory=dict)


@cache
def pci_gpus(devices: str = "/sys/bus/pci/devices") -> int | None:
    """The number of NVIDIA GPUs on the PCI bus, with or without a working driver."""
    try:
        pairs = [_pci_id(f"{devices}/{name}") for name in os.listdir(devices)]
    except OSError:
        return None
    return sum(vendor == "0x10de" and kind.startswith("0x03") for vendor, kind in pairs)


def _pci_id(device: str) -> tuple[str, str]:
    """Vendor and class of a PCI device; empty if it was just removed."""
    try:
        vendor, kind = (proc.text(f"{device}/{name}").strip() for name in ("vendor", "class"))
    except OSError:
        return "", ""
    return vendor, kind


def read_machine() -> Host | None:
    """The machine now; ``None`` if it does not report its number of CPUs or its memory."""
    cpus, memory = os.cpu_count(), proc.machine_memory()
    if cpus is None or memory is None:
        return None
    return Host(
        memory_total_bytes=memory[0],
        memory_available_bytes=memory[1],
        cpus=cpus,
        load_1m=os.getloadavg()[0],
        pci_gpus=pci_gpus(),
        stolen_seconds=proc.stolen_seconds(),
    )


class HostSource:
    """Follows the processes of the last call; one object for the daemon's life."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._children = children_files()
        self._followed: dict[int, _Followed] = {}
        self._walked_ns: int | None = None

    def read(self, pids: Iterable[int], *, steady: bool = False) -> Mapping[int, ProcessReading]:
        """One reading for each readable process of ``pids``. ``steady``: none of them compiles."""
        followeds, self._followed = self._followed, {}
        pids = list(pids)
        children = (
            self._walk(newcomers=bool(set(pids) - set(followeds)), steady=steady) if pids else None
        )
        limit = cache(full_first)  # the ranks of a job share a cgroup
        readings = {}
        for pid in pids:
            try:
                followed = followeds.get(pid) or _Followed(pid)
                readings[pid] = followed.read(self._clock.monotonic_ns, children, limit)
            except OSError:
                continue
            self._followed[pid] = followed
        return readings

    def _walk(self, *, newcomers: bool, steady: bool) -> Children | None:
        """How to find children, if it is time to look for workers again."""
        now_ns = self._clock.monotonic_ns()
        pause = _WALK_NS if self._children and not steady else _SCAN_NS
        waited = self._walked_ns is None or now_ns - self._walked_ns >= pause
        if not waited and not (newcomers and self._children):
            return None
        self._walked_ns = now_ns
        return self._children or children_by_scan()


class _Followed:
    """One training process, with its totals at the last poll."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu: tuple[int, float] | None = None
        self._pool: tuple[int, Totals] | None = None
        self._workers: tuple[int | None, int | None] = (None, None)
        self._group = memory_group(pid)
        self._workers_memory: WorkersMemory | None = None
        self._memory_left: int | None = None
        self._queued: tuple[float, float] | None = None
        self._queued_ratio: float | None = None
        self._cpus: int | None = None
        self._compilers = Compilers()
        self._busiest: tuple[Compiler, ...] = ()
        self._below: tuple[int, Totals, float] | None = None
        self._below_ratio: float | None = None
        self._opens_devices: bool | None = None

    def read(
        self,
        clock_ns: Callable[[], int],
        children: Children | None,
        limit: Callable[[Group | None], Use | None],
    ) -> ProcessReading:
        """Raises OSError if the process is gone or may not be read."""
        stat, (resident, private) = proc.stat(self._pid), proc.memory(self._pid)
        now_ns, cpu = clock_ns(), stat.cpu_seconds
        ratio = None
        if self._cpu is not None and now_ns > self._cpu[0]:
            ratio = max(0.0, (cpu - self._cpu[1]) / ((now_ns - self._cpu[0]) / 1e9))
        rests = self._cpu is None or cpu == self._cpu[1]  # one that works is not frozen
        frozen = thaw(self._pid) if rests else None
        self._cpu = (now_ns, cpu)
        queued = proc.queued_seconds(self._pid)
        if children is not None:
            self._read_pool(now_ns, children, stat.waited_seconds)
            use = limit(self._group)
            self._memory_left = max(0, use.limit - use.used) if use else None
            self._opens_devices = proc.opens_devices(self._pid)
            self._read_scheduling(queued, now_ns / 1e9, stat)
        busy, idle = self._workers
        return ProcessReading(
            pid=self._pid,
            cpu_seconds=cpu,
            resident_bytes=resident,
            cpu_ratio=ratio,
            threads=stat.threads,
            workers_busy=busy,
            workers_idle=idle,
            stopped=stat.stopped or frozen is not None,
            thaw=frozen,
            compilers=self._busiest,
            private_bytes=private,
            workers_memory=self._workers_memory,
            memory_left_bytes=self._memory_left,
            queued_seconds=queued,
            queued_ratio=self._queued_ratio,
            cpus=self._cpus,
            compiling=self._compilers.compiling,
            below_cpu_ratio=self._below_ratio,
            opens_devices=self._opens_devices,
            tree_read=self._pool is not None,
        )

    def _read_scheduling(self, queued: float | None, now: float, stat: proc.Stat) -> None:
        self._cpus = proc.usable_cpus(self._pid)
        if queued is None:
            return
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - stat.started_seconds
        before, then = self._queued or (0.0, now - age)  # the first share is since it began
        self._queued_ratio = min(1.0, (queued - before) / (now - then)) if now > then else None
        self._queued = queued, now

    def _read_pool(self, now_ns: int, children: Children, waited: float) -> None:
        children = cached(children)
        workers = compile_workers(self._pid, children)
        below = with_descendants(self._pid, children)[1:]
        self._busiest = self._compilers.read(below, workers, now_ns, BUSY_WORKER_RATIO)
        self._read_below(now_ns, below, waited)
        totals = {worker: sum(map(_cpu_seconds, pids)) for worker, pids in workers.items()}
        if self._pool is not None:
            elapsed = (now_ns - self._pool[0]) / 1e9
            self._workers = _busy_and_idle(self._pool[1], totals, elapsed)
        self._pool = (now_ns, totals)
        pids = [pid for pids in workers.values() for pid in pids]
        self._workers_memory = of_workers(len(workers), pids, self._group) if workers else None

    def _read_below(self, now_ns: int, below: Iterable[int], waited: float) -> None:
        """The cores that the processes below it use, those included that came and went.

        ``waited``: CPU time of the children that it has waited for.
        """
        totals = {pid: _cpu_seconds(pid) for pid in below}
        before, self._below = self._below, (now_ns, totals, waited)
        if before is None or now_ns <= before[0]:
            return
        then_ns, amounts, waited_before = before
        gone = sum(total for pid, total in amounts.items() if pid not in totals)
        used = sum(max(0.0, total - amounts.get(pid, 0.0)) for pid, total in totals.items())
        used += max(0.0, waited - waited_before - gone)
        self._below_ratio = used / ((now_ns - then_ns) / 1e9)


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process and of the children it has waited for; 0 if it is gone."""
    try:
        stat = proc.stat(pid)
    except OSError:
        return 0.0
    return stat.cpu_seconds + stat.waited_seconds


def _busy_and_idle(before: Totals, now: Totals, elapsed: float) -> tuple[int, int]:
    """Count busy and idle workers; a new worker has used all its time since the last poll."""
    enough = BUSY_WORKER_RATIO * elapsed
    busy = sum(1 for pid, total in now.items() if total - before.get(pid, 0.0) > enough)
    return busy, len(now) - busy


_REMEMBERED = 1_000


class OomWatch:
    """Whether the kernel killed a process for lack of memory, from its cgroup.

    ``memory.events`` of cgroup v2, and ``memory.oom_control`` of v1 if that has the memory, count
    the OOM killer's kills in a group. The count is read while a process lives. If it has grown when
    the process is gone, that is the likely cause. Nothing is known if the group disappeared with
    its process or cannot be read. The same holds if more of its processes ended than were killed
    (the launcher ends the others): the count does not show which one was killed.
    """

    def __init__(self) -> None:
        self._followed: dict[int, _FollowedGroup] = {}
        self._gone: dict[int, bool] = {}

    def follow(self, pids: Iterable[int]) -> Mapping[int, bool]:
        """For the followed processes that are gone, whether the OOM killer ended each."""
        groups, self._followed = self._followed, {}
        for pid in pids:
            self._gone.pop(pid, None)
            followed = groups.pop(pid) if pid in groups else _FollowedGroup(self._events(pid))
            followed.poll()
            self._followed[pid] = followed
        went = Counter(followed.events for followed in groups.values())
        for pid, followed in groups.items():
            killed = followed.killed_since()
            if killed is not None and (not killed or killed >= went[followed.events]):
                self._gone[pid] = killed > 0
        while len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        return dict(self._gone)

    def _events(self, pid: int) -> str | None:
        """The file that counts for a process; ``None`` if it has no cgroup."""
        group = memory_group(pid)
        if group is None:
            return None
        return f"{group.folder}/{'memory.oom_control' if group.first else 'memory.events'}"


class _FollowedGroup:
    """One process, with the kills in its group at the last two polls.

    Two, because the count grows just before the process is gone: the last poll may have seen that.
    """

    def __init__(self, events: str | None) -> None:
        self.events = events
        self._counts: tuple[int | None, ...] = ()

    def poll(self) -> None:
        self._counts = (*self._counts[-1:], self._read())

    def killed_since(self) -> int | None:
        """The kills in its group about the time it ended; call it when it is gone."""
        now, before = self._read(), [count for count in self._counts if count is not None]
        return max(0, now - min(before)) if now is not None and before else None

    def _read(self) -> int | None:
        return None if self.events is None else counted_in(self.events, "oom_kill")
