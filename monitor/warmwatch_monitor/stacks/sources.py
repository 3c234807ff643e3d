"""Where stacks come from: the dump that the agent left, and the compile processes below a rank."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import psutil

from warmwatch.shared.record import STACKS, RecordError
from warmwatch.shared.record.stack_file import STACKS_LIMIT, unpack_stacks
from warmwatch_monitor.model import Compiler, Stacks
from warmwatch_monitor.sources.host import BUSY_WORKER_RATIO
from warmwatch_monitor.sources.processes import (
    Compilers,
    children_by_scan,
    children_files,
    compile_workers,
    remembered,
    with_descendants,
)
from warmwatch_monitor.sources.records.folder import Folder

_MOST = 64  # lines; an agent doubles its pauses, so a day is a dozen


def left_stacks(folder: str, since_ns: int) -> tuple[Stacks, ...]:
    """Those of the activity that began at ``since_ns``, oldest first.

    Raises:
        OSError: there are none. RecordError: they are not to be believed.
    """
    with Folder(folder) as opened:
        descriptor, status = opened.open(STACKS)
        try:
            if status.st_size > STACKS_LIMIT:
                raise RecordError(f"its {STACKS} is longer than an agent writes it")
            data = os.pread(descriptor, STACKS_LIMIT, 0)
        finally:
            os.close(descriptor)
    found = []
    for line in data.split(b"\n")[:_MOST]:
        with contextlib.suppress(RecordError):  # torn, or nobody's of ours
            found.append(unpack_stacks(line))
    return tuple(one for one in found if one.since_ns == since_ns)


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
