"""The descendants of a training, and which of them are compile workers."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from warmwatch.shared.compilers import known_name
from warmwatch_monitor.figures.machine import Compiler
from warmwatch_monitor.model.machine import WORKER, Compiling
from warmwatch_monitor.sources import proc

POOL = "torch/_inductor/compile_worker"
_PROGRAMS = frozenset({"warmwatch", "warmwatch_monitor"})
_NOT_WORKERS = "resource_tracker"

Children = Callable[[int], Sequence[int]]


def children_files() -> Children | None:
    """The kernel's own lists of children; ``None`` if it has none."""
    if not os.path.exists(f"{proc.PROC}/thread-self/children"):
        return None

    def children(pid: int) -> list[int]:
        numbers: list[int] = []
        with contextlib.suppress(OSError):
            for task in proc.threads(pid):
                with contextlib.suppress(OSError):  # a thread that ended meanwhile
                    numbers.extend(
                        map(int, proc.text(f"{proc.PROC}/{pid}/task/{task}/children").split())
                    )
        return numbers

    return children


def children_by_scan() -> Children:
    """Children of every process, from one list of all processes taken now. Costly."""
    table: dict[int, list[int]] = {}
    for pid in proc.pids():
        with contextlib.suppress(OSError):  # it has ended
            table.setdefault(proc.stat(pid).parent, []).append(pid)
    return lambda pid: table.get(pid, [])


def command_line(pid: int) -> str:
    """The command line of a process; empty if it is gone or may not be read."""
    try:
        return " ".join(proc.command(pid))
    except OSError:
        return ""


def daemons() -> list[tuple[int, int]]:
    """Pid and uid of each process that is a daemon of this program, without a ``sudo`` above it."""
    owners, parents = dict[int, int](), set[int]()
    for pid in proc.pids():
        with contextlib.suppress(OSError):
            parts = [os.path.basename(word) for word in proc.command(pid)]
            if any(name in _PROGRAMS and two == "serve" for name, two in itertools.pairwise(parts)):
                parents.update(proc.ancestors(pid))
                owners[pid] = os.stat(f"{proc.PROC}/{pid}").st_uid
    return [(pid, uid) for pid, uid in owners.items() if pid not in parents]


def compile_workers(root: int, children: Children) -> Mapping[int, tuple[int, ...]]:
    """The compile workers below ``root``, each with its own descendants."""
    workers: dict[int, tuple[int, ...]] = {}
    pending, seen = list(children(root)), {root}
    while pending:
        pid = pending.pop()
        if pid in seen:
            continue
        seen.add(pid)
        if POOL not in command_line(pid):
            pending.extend(children(pid))
            continue
        for worker in children(pid):
            if _NOT_WORKERS not in command_line(worker):
                workers[worker] = tuple(with_descendants(worker, children))
    return workers


def cached(children: Children) -> Children:
    """``children``, cached for one poll of one tree: each process is read once."""
    groups: dict[int, Sequence[int]] = {}

    def once(pid: int) -> Sequence[int]:
        if pid not in groups:
            groups[pid] = children(pid)
        return groups[pid]

    return once


def with_descendants(root: int, children: Children) -> list[int]:
    values = {root: None}  # ordered
    pending = [root]
    for pid in pending:
        news = [child for child in children(pid) if child not in values]
        values.update(dict.fromkeys(news))
        pending.extend(news)
    return list(values)


MOST = 8
# A younger compiler that was never read before is judged by the CPU time of its whole life.
_YOUNG_SECONDS = 10.0


class _Seen(Struct, frozen=True, kw_only=True):
    """A compiler as ``stat`` shows it; ``age``: in seconds."""

    pid: int
    name: str
    stat: proc.Stat
    age: float


class Compilers:
    """The compilers of one training, over many polls.

    Attributes:
        compiling: those that are busy, as of the last poll. Compile workers and the compilers that
        they start do not count: PyTorch reports their work itself. ``None`` if none is.
    """

    def __init__(self) -> None:
        self._before: tuple[int, Mapping[int, float]] | None = None
        self.compiling: Compiling | None = None

    def read(
        self,
        pids: Iterable[int],
        workers: Mapping[int, Iterable[int]],
        now_ns: int,
        busy_ratio: float,
    ) -> tuple[Compiler, ...]:
        """The busiest of ``pids`` that compile; those of ``workers`` where they are at it."""
        seens = [item for pid in pids if (item := _read(pid, pid in workers)) is not None]
        before, self._before = (
            self._before,
            (now_ns, {value.pid: value.stat.cpu_seconds for value in seens}),
        )
        enough = 0.0 if before is None else busy_ratio * (now_ns - before[0]) / 1e9
        seen = [
            Compiler(
                pid=value.pid,
                name=value.name,
                cpu_seconds=value.stat.cpu_seconds,
                busy=_first_sight(value, busy_ratio)
                if before is None
                else value.stat.cpu_seconds - before[1].get(value.pid, 0.0) > enough,
                stopped=value.stat.stopped,
            )
            for value in seens
        ]
        of_pool = {pid for pids in workers.values() for pid in pids}
        began = {
            value.pid: now_ns - round(value.age * 1e9)
            for value in seens
            if value.pid not in of_pool
        }
        self.compiling = self._compiling(
            began,
            [compiler.pid for compiler in seen if compiler.busy and compiler.pid in began],
            before,
            now_ns,
        )
        worth = [
            compiler
            for compiler in seen
            if compiler.name != WORKER or compiler.busy or compiler.stopped
        ]
        return tuple(sorted(worth, key=_weight))[:MOST]

    def _compiling(
        self,
        began: Mapping[int, int],
        busy: Sequence[int],
        before: tuple[int, Mapping[int, float]] | None,
        now_ns: int,
    ) -> Compiling | None:
        """``began``: when each compiler did; ``busy``: those that are."""
        if not busy:
            return None
        since_ns = min(began.values())
        if self.compiling is not None:  # the compilers of one build follow each other
            since_ns = min(since_ns, self.compiling.since_ns)
        busy_ns = max(max(began[pid], before[0] if before else 0) for pid in busy)
        return Compiling(since_ns=since_ns, busy_ns=busy_ns, read_ns=now_ns)


def _first_sight(seen: _Seen, busy_ratio: float) -> bool | None:
    """Whether it works, for a reader that has seen it once; ``None`` if that does not show."""
    if seen.name == WORKER or seen.stat.stopped:
        return None
    if seen.stat.state == "R" or (
        seen.age < _YOUNG_SECONDS and seen.stat.cpu_seconds > busy_ratio * seen.age
    ):
        return True
    return None


def _weight(compiler: Compiler) -> tuple[bool, bool, float, int]:
    return not compiler.stopped, not compiler.busy, -compiler.cpu_seconds, compiler.pid


def _read(pid: int, worker: bool) -> _Seen | None:
    """``None`` if it is gone, cannot be read or does not compile."""
    try:
        stat = proc.stat(pid)
        name = WORKER if worker else known_name(proc.whole_name(pid, stat.name))
    except OSError:
        return None
    if name is None or stat.state == "Z":
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - stat.started_seconds
    return _Seen(pid=pid, name=name, stat=stat, age=max(0.0, age))
