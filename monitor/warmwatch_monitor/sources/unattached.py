"""Unattached trainings: processes that look like one from outside.

Two signs: a process has torch's pool of compile workers below it, or NVML lists it as computing on
a GPU. NVML uses the host's pids, so that only counts if this process shares the host's pid
namespace. Processes are listed every ten seconds at most, and each command line is read once. The
trainings found are read at every poll.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from warmwatch.shared.record import SLOT
from warmwatch.shared.values import printable
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.model import machine
from warmwatch_monitor.model.machine import GpuReading, ObservedTraining, ProcessReading, Signs
from warmwatch_monitor.sources import proc
from warmwatch_monitor.sources.host import HostSource
from warmwatch_monitor.sources.processes import POOL

_LIST_NS = 10 * 10**9
_INITIAL_NAMESPACE = "pid:[4026531836]"  # the kernel's constant PROC_PID_INIT_INO
_COMMAND_LIMIT = 80
_INTERPRETERS = ("python", "pypy")
_TORCH = "/libtorch_python."  # the library that `import torch` loads

Follow = Callable[[Iterable[int]], Mapping[int, ProcessReading]]


class ObservedSource:
    """Searches for trainings without an agent; one object for the daemon's life."""

    def __init__(self, *, clock: Clock | None = None, shares_pids: bool | None = None) -> None:
        self._clock = clock or Clock()
        self._shares_pids = in_initial_namespace() if shares_pids is None else shares_pids
        self._host: Follow = HostSource(clock=self._clock).read
        self._commands: dict[int, tuple[str, ...]] = {}
        self._pool_parents: set[int] = set()
        self._listed_ns: int | None = None
        self._polls: dict[int, deque[Signs]] = {}

    def read(
        self, attached: Collection[int], gpus: Sequence[GpuReading]
    ) -> tuple[ObservedTraining, ...]:
        """The unattached trainings now; ``attached``: the pids that have an agent."""
        now_ns = self._clock.monotonic_ns()
        if self._listed_ns is None or now_ns - self._listed_ns >= _LIST_NS:
            self._listed_ns = now_ns
            self._list()
        numbers = self._pool_parents | (self._computing(gpus) if self._shares_pids else set())
        unattached = [pid for pid in sorted(numbers) if not _belongs(pid, attached)]
        readings = self._host(unattached)
        self._polls = {pid: self._polls.get(pid, deque(maxlen=machine.POLLS)) for pid in readings}
        return tuple(self._observed(pid, reading, gpus) for pid, reading in readings.items())

    def _observed(
        self, pid: int, reading: ProcessReading, gpus: Sequence[GpuReading]
    ) -> ObservedTraining:
        own = [gpu for gpu in gpus if self._shares_pids and pid in (gpu.processes or ())]
        polls = self._polls[pid]
        polls.append(_signs(reading, own))
        return ObservedTraining(
            pid=pid,
            command=_called(pid, self._command(pid)),
            gpus=tuple(gpu.uuid for gpu in own),
            signs=polls[-1],
            polls=len(polls),
            likely_compiling=machine.likely_compiling(tuple(polls)),
        )

    def _list(self) -> None:
        """Find pools of compile workers, and their parents."""
        groups, self._commands = self._commands, {}
        pools: set[int] = set()
        parents: set[int] = set()
        for pid in proc.pids():
            try:  # read no more of a process than is needed to judge it
                command = groups[pid] if pid in groups else proc.command(pid)
                self._commands[pid] = command
                if POOL in " ".join(command):
                    parents.add(proc.stat(pid).parent)
                    pools.add(pid)
            except OSError:
                continue
        self._pool_parents = parents - pools - {0, 1}

    def _computing(self, gpus: Iterable[GpuReading]) -> set[int]:
        """Python processes that NVML lists."""
        pids = {pid for gpu in gpus for pid in gpu.processes or ()}
        return {pid for pid in pids if _is_python(self._command(pid))}

    def _command(self, pid: int) -> tuple[str, ...]:
        if pid not in self._commands:
            try:
                self._commands[pid] = proc.command(pid)
            except OSError:
                return ()
        return self._commands[pid]


def without_record() -> list[tuple[int, str]]:
    """Processes that have loaded PyTorch and have no record yet: pid and command.

    The user's own ones with a script first, the newest first of these. Only of processes that this
    user may look into. No helpers of others, such as workers, and no launcher of a process with a
    record.
    """
    loaded: set[int] = set()
    recorded: set[int] = set()
    for pid in proc.pids():
        try:
            if _has_torch(pid):
                (recorded if proc.has_open(pid, SLOT) else loaded).add(pid)
        except OSError:
            continue
    launchers = set[int]()
    for pid in recorded:
        with suppress(OSError):
            launchers |= set(proc.ancestors(pid))
    found = []
    for pid in loaded - launchers:
        with suppress(OSError):
            if (loaded | recorded).isdisjoint(proc.ancestors(pid)):
                command = proc.command(pid)
                is_other = os.stat(f"{proc.PROC}/{pid}").st_uid != os.getuid()
                rank = (
                    is_other,
                    not proc.python_program(command)[1],
                    -proc.stat(pid).started_seconds,
                )
                found.append((rank, pid, _called(pid, command)))
    return [(pid, text) for _, pid, text in sorted(found)]


def is_starting(run: str, after: float) -> bool:
    """Whether a process without a record began after that time, and its record will be of ``run``.

    ``after``: seconds since the epoch. Children of an earlier start began before its end.
    """
    from warmwatch_monitor.sources.script import run_name  # no other reader pays for its imports

    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    least = uptime - (time.time() - after)
    for pid in proc.pids():
        with suppress(OSError):  # another user's, or gone
            if (
                proc.stat(pid).started_seconds > least
                and run_name(pid) == run
                and _has_torch(pid)
                and not any(map(_has_record, (pid, *proc.ancestors(pid))))
            ):
                return True
    return False


def _has_torch(pid: int) -> bool:
    """Whether it has loaded PyTorch, and is no compile worker, which may outlive its training.

    Raises OSError: it is another user's, or gone.
    """
    return _TORCH in proc.text(f"{proc.PROC}/{pid}/maps") and POOL not in " ".join(
        proc.command(pid)
    )


def _has_record(pid: int) -> bool:
    try:
        return proc.has_open(pid, SLOT)
    except OSError:  # an ancestor of another user, such as the container's first process
        return False


def in_initial_namespace() -> bool:
    """Whether pids here are the host's, which NVML uses."""
    try:
        return os.readlink("/proc/self/ns/pid") == _INITIAL_NAMESPACE
    except OSError:
        return False


def shown(command: Sequence[str]) -> str:
    """A command up to its script or module, because arguments may be secret."""
    option, name = proc.python_program(command)
    name = name if option else os.path.basename(name)
    parts = [os.path.basename(command[0]) if command else "", option if name else "", name]
    return printable(" ".join(filter(None, parts)))[:_COMMAND_LIMIT]


def _called(pid: int, command: Sequence[str]) -> str:
    """A command as shown; if it runs no script, with the name of its working directory."""
    text = shown(command)
    if _is_python(command) and not proc.python_program(command)[1]:
        with suppress(OSError):  # another user's
            return printable(f"{text} in {proc.directory(pid)}")[:_COMMAND_LIMIT]
    return text


def _is_python(command: Sequence[str]) -> bool:
    name = os.path.basename(command[0]) if command else ""
    return name.startswith(_INTERPRETERS)


def _belongs(pid: int, attached: Collection[int]) -> bool:
    """Whether it is a process with an agent, or a helper of one."""
    if pid in attached:
        return True
    try:
        family = {pid, *proc.ancestors(pid)}
    except OSError:
        return True  # it is gone
    return not family.isdisjoint(attached)


def _signs(reading: ProcessReading, gpus: Sequence[GpuReading]) -> Signs:
    busiest = max(gpus, key=lambda gpu: gpu.utilization_ratio or 0.0, default=None)
    return Signs(
        cpu_ratio=reading.cpu_ratio,
        workers_busy=reading.workers_busy,
        workers_idle=reading.workers_idle,
        gpu_ratio=busiest.utilization_ratio if busiest else None,
        watts=busiest.power_watts if busiest else None,
        idle_watts=busiest.idle_watts if busiest else None,
    )
