"""Where stacks come from: the dump that the agent left, the kernel, and the compile processes."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from msgspec import Struct

from warmwatch.shared.record import STACKS, RecordError
from warmwatch.shared.record.stack_file import STACKS_LIMIT, unpack_stacks
from warmwatch.shared.values import printable
from warmwatch_monitor.model import Compiler, Stacks
from warmwatch_monitor.sources.host import BUSY_WORKER_RATIO
from warmwatch_monitor.sources.processes import (
    Compilers,
    cached,
    children_by_scan,
    children_files,
    compile_workers,
    with_descendants,
)
from warmwatch_monitor.sources.records.folder import Folder

_MOST = 64  # lines; an agent doubles its pauses, so a day has about a dozen


def dumped_stacks(folder: str, since_ns: int) -> tuple[Stacks, ...]:
    """The dumps of the activity that began at ``since_ns``, oldest first.

    Raises:
        OSError: there are none. RecordError: they are invalid.
    """
    with Folder(folder) as opened:
        descriptor, status = opened.open(STACKS)
        try:
            if status.st_size > STACKS_LIMIT:
                raise RecordError(f"its {STACKS} is longer than {STACKS_LIMIT:,} bytes")
            data = os.pread(descriptor, STACKS_LIMIT, 0)
        finally:
            os.close(descriptor)
    found = []
    for line in data.split(b"\n")[:_MOST]:
        with contextlib.suppress(RecordError):  # torn, or not the agent's
            found.append(unpack_stacks(line))
    return tuple(one for one in found if one.since_ns == since_ns)


class KernelThreads(Struct, frozen=True, kw_only=True):
    """Threads that do the same, as the kernel shows them to their user."""

    name: str
    """Their name, as `ps` shows it."""
    count: int
    """Number of the threads."""
    main: bool
    """Whether the main thread is among them."""
    state: str
    """`runs`, `sleeps`, or `waits for a device`, which no signal interrupts."""
    function: str | None = None
    """The kernel function in which they sleep or wait; null if unknown."""


_STATES = {"R": "runs", "S": "sleeps", "I": "sleeps", "D": "waits for a device", "T": "is stopped"}


def kernel_threads(pid: int, proc: Path = Path("/proc")) -> tuple[KernelThreads, ...]:
    """The activity of the threads of ``pid``, the main one first; empty if it may not be read.

    Needs no permission to trace. For a hanging rank it shows whether it computes, sleeps, or waits
    for a filesystem or a device, though not where in its program.
    """
    found: dict[tuple[bool, str, str, str | None], int] = {}
    tasks = proc / str(pid) / "task"
    with contextlib.suppress(OSError):
        for task in sorted(tasks.iterdir(), key=lambda one: int(one.name)):
            with contextlib.suppress(OSError):  # a thread that ended meanwhile
                key = (task.name == str(pid), *_doing(task))
                found[key] = found.get(key, 0) + 1
    return tuple(
        KernelThreads(name=name, count=count, main=main, state=state, function=function)
        for (main, name, state, function), count in found.items()
    )


def _doing(task: Path) -> tuple[str, str, str | None]:
    """Name, state and the kernel's function of one thread."""
    name, _, rest = (task / "stat").read_text(errors="replace").rpartition(")")
    letter = rest.split()[0]
    function = ""
    if letter in "SDI":
        with contextlib.suppress(OSError):
            function = (task / "wchan").read_text(errors="replace")
    known = printable(function) if function not in ("", "0") else None
    return printable(name.partition("(")[2]), _STATES.get(letter, f"is in state {letter}"), known


_BETWEEN = 0.5  # seconds


def compilers_of(pid: int) -> tuple[Compiler, ...]:
    """The busiest compilers below ``pid``; none if they may not be read."""
    seen = Compilers()
    found: tuple[Compiler, ...] = ()
    for pause in (0.0, _BETWEEN):
        time.sleep(pause)
        children = cached(children_files() or children_by_scan())
        workers = compile_workers(pid, children)
        below = with_descendants(pid, children)[1:]
        found = seen.read(below, workers, time.monotonic_ns(), BUSY_WORKER_RATIO)
    return found
