"""What compiles below one process, looked at twice so that it shows what is busy."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from warmwatch_monitor.model import Compiler
from warmwatch_monitor.sources.compilers import Compilers
from warmwatch_monitor.sources.host import BUSY_WORKER_RATIO
from warmwatch_monitor.sources.processes import (
    children_by_scan,
    children_files,
    compile_workers,
    remembered,
    with_descendants,
)

_BETWEEN = 0.5  # seconds


def compilers_of(pid: int) -> tuple[Compiler, ...]:
    """The busiest compilers below ``pid``; none where nobody may ask."""
    seen, members = Compilers(), dict[int, psutil.Process]()
    found: tuple[Compiler, ...] = ()
    for pause in (0.0, _BETWEEN):
        time.sleep(pause)
        children = remembered(children_files(Path("/proc")) or children_by_scan())
        workers = compile_workers(pid, children, lambda one: _command(members, one))
        below = with_descendants(pid, children)[1:]
        now_ns = time.monotonic_ns()
        found = seen.read(
            below, workers, lambda one: _member(members, one), now_ns, BUSY_WORKER_RATIO
        )
    return found


def _member(members: dict[int, psutil.Process], pid: int) -> psutil.Process:
    """Raises psutil.Error."""
    if pid not in members:
        members[pid] = psutil.Process(pid)
    return members[pid]


def _command(members: dict[int, psutil.Process], pid: int) -> str:
    try:
        return " ".join(_member(members, pid).cmdline())
    except psutil.Error:
        return ""
