"""Which processes descend from a training process, and which of them are compile workers.

Where the kernel keeps ``/proc/PID/task/*/children`` only the tree itself is walked; elsewhere all
processes are listed, once for all ranks, and the caller asks for that rarely.

A pool of compile workers is one process whose command line names torch's ``compile_worker``, and
its children: forked ones show the same command line, spawned ones another. What a worker starts in
turn (a C++ compiler, ``ptxas``) works for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

POOL = "torch/_inductor/compile_worker"
_NOT_WORKERS = "resource_tracker"

Children = Callable[[int], Sequence[int]]


def children_files(proc: Path) -> Children | None:
    """The kernel's own lists of children under ``proc``; ``None`` where it keeps none."""
    if not any(proc.glob("self/task/*/children")):
        return None

    def children(pid: int) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(OSError):
            for task in (proc / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError):  # a thread that ended meanwhile
                    found.extend(map(int, (task / "children").read_text().split()))
        return found

    return children


def children_by_scan() -> Children:
    """Children of every process, from one list of all processes taken now. Costly."""
    table: dict[int, list[int]] = {}
    for process in psutil.process_iter(["ppid"]):
        table.setdefault(process.info["ppid"] or 0, []).append(process.pid)
    return lambda pid: table.get(pid, [])


def compile_workers(
    root: int, children: Children, command: Callable[[int], str]
) -> Mapping[int, tuple[int, ...]]:
    """The compile workers below ``root``, each with itself and all that it started."""
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


def remembered(children: Children) -> Children:
    """``children``, for one look at one tree: each process is asked once."""
    known: dict[int, Sequence[int]] = {}

    def once(pid: int) -> Sequence[int]:
        if pid not in known:
            known[pid] = children(pid)
        return known[pid]

    return once


def with_descendants(root: int, children: Children) -> list[int]:
    """``root``, and all that it started and that they started, each once."""
    found = {root: None}  # in order
    pending = [root]
    for pid in pending:
        news = [child for child in children(pid) if child not in found]
        found.update(dict.fromkeys(news))
        pending.extend(news)
    return list(found)
