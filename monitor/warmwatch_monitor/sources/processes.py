"""The descendants of a training, and which of them are compile workers."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from warmwatch_monitor.model import Compiler
from warmwatch_monitor.sources import proc

POOL = "torch/_inductor/compile_worker"
_NOT_WORKERS = "resource_tracker"

Children = Callable[[int], Sequence[int]]


def children_files(root: str = proc.PROC) -> Children | None:
    """The kernel's own lists of children under ``root``; ``None`` if it has none."""
    if not os.path.exists(f"{root}/thread-self/children"):
        return None

    def children(pid: int) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(OSError):
            for task in os.listdir(f"{root}/{pid}/task"):
                with contextlib.suppress(OSError):  # a thread that ended meanwhile
                    found.extend(map(int, proc.text(f"{root}/{pid}/task/{task}/children").split()))
        return found

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


def compile_workers(
    root: int, children: Children, command: Callable[[int], str] = command_line
) -> Mapping[int, tuple[int, ...]]:
    """The compile workers below ``root``, each with its own descendants."""
    workers: dict[int, tuple[int, ...]] = {}
    pending, seen = list(children(root)), {root}
    while pending:
        pid = pending.pop()
        if pid in seen:
            continue
        seen.add(pid)
        if POOL not in command(pid):
            pending.extend(children(pid))
            continue
        for worker in children(pid):
            if _NOT_WORKERS not in command(worker):
                workers[worker] = tuple(with_descendants(worker, children))
    return workers


def cached(children: Children) -> Children:
    """``children``, cached for one poll of one tree: each process is read once."""
    known: dict[int, Sequence[int]] = {}

    def once(pid: int) -> Sequence[int]:
        if pid not in known:
            known[pid] = children(pid)
        return known[pid]

    return once


def with_descendants(root: int, children: Children) -> list[int]:
    found = {root: None}  # ordered
    pending = [root]
    for pid in pending:
        news = [child for child in children(pid) if child not in found]
        found.update(dict.fromkeys(news))
        pending.extend(news)
    return list(found)


WORKER = "compile worker"
MOST = 8
# ``x86_64-linux-gnu-g++-12`` is g++; collect2 and the assembler are GCC's own helpers
_KNOWN = (
    r"(?:[\w.]+-)*"
    r"(cc1plus|cc1|g\+\+|gcc|c\+\+|clang\+\+|clang|icpx|nvcc|cicc|ptxas|cudafe\+\+|fatbinary|nvlink"
    r"|hipcc|ninja|make|cmake|as|collect2|ld|ld\.\w+|lld|lto1|lto-wrapper)"
    r"(?:-[\d.]+)?"
)


def known_name(name: str) -> str | None:
    """The display name of a compiler; ``None`` for anything else."""
    found = re.fullmatch(_KNOWN, name[:100])
    return found[1] if found else None


class Compilers:
    """The compilers of one training, over many polls."""

    def __init__(self) -> None:
        self._before: tuple[int, Mapping[int, float]] | None = None

    def read(
        self,
        pids: Iterable[int],
        workers: Collection[int],
        now_ns: int,
        busy_ratio: float,
    ) -> tuple[Compiler, ...]:
        """The busiest of ``pids`` that compile; those of ``workers`` where they are at it."""
        found = [one for pid in pids if (one := _read(pid, pid in workers)) is not None]
        before, self._before = self._before, (now_ns, {one[0]: one[2] for one in found})
        enough = 0.0 if before is None else busy_ratio * (now_ns - before[0]) / 1e9
        seen = [
            Compiler(
                pid=pid,
                name=name,
                cpu_seconds=cpu,
                busy=None if before is None else cpu - before[1].get(pid, 0.0) > enough,
                stopped=stopped,
            )
            for pid, name, cpu, stopped in found
        ]
        worth = [one for one in seen if one.name != WORKER or one.busy or one.stopped]
        return tuple(sorted(worth, key=_weight))[:MOST]


def _weight(one: Compiler) -> tuple[bool, bool, float, int]:
    return not one.stopped, not one.busy, -one.cpu_seconds, one.pid


def _read(pid: int, worker: bool) -> tuple[int, str, float, bool] | None:
    """``None`` if it is gone, cannot be read or does not compile."""
    try:
        stat = proc.stat(pid)
        name = WORKER if worker else known_name(proc.whole_name(pid, stat.name))
    except OSError:
        return None
    return None if name is None else (pid, name, stat.cpu_seconds, stat.stopped)
