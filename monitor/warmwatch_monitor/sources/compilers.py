"""Which processes below a training compile for it, by names that are known for that.

Names are of a closed list, so nothing of the user's gets into an answer by what a process of his
calls itself. A compiler is a child of the training (``cpp_extension``), of one of its threads'
(C++ of Inductor) or of a compile worker (``ptxas``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

import psutil

from warmwatch_monitor.model import Compiler

WORKER = "compile worker"
MOST = 8
# ``x86_64-linux-gnu-g++-12`` is g++; collect2 and the assembler are GCC's own helpers
_KNOWN = re.compile(
    r"(?:[\w.]+-)*"
    r"(cc1plus|cc1|g\+\+|gcc|c\+\+|clang\+\+|clang|icpx|nvcc|cicc|ptxas|cudafe\+\+|fatbinary|nvlink"
    r"|hipcc|ninja|make|cmake|as|collect2|ld|ld\.\w+|lld|lto1|lto-wrapper)"
    r"(?:-[\d.]+)?"
)
STOPPED = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP})


def known_name(name: str) -> str | None:
    """What a compiler of this name is called; ``None`` of anything else."""
    found = _KNOWN.fullmatch(name[:100])
    return found[1] if found else None


class Compilers:
    """Those of one training, looked at again and again."""

    def __init__(self) -> None:
        self._before: tuple[int, Mapping[int, float]] | None = None

    def read(
        self,
        pids: Iterable[int],
        workers: Collection[int],
        member: Callable[[int], psutil.Process],
        now_ns: int,
        busy_ratio: float,
    ) -> tuple[Compiler, ...]:
        """The busiest of ``pids`` that compile; those of ``workers`` where they are at it."""
        found = [one for pid in pids if (one := _read(member, pid, pid in workers)) is not None]
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


def _read(
    member: Callable[[int], psutil.Process], pid: int, worker: bool
) -> tuple[int, str, float, bool] | None:
    """``None`` where it is gone, may not be asked or compiles nothing."""
    try:
        process = member(pid)
        with process.oneshot():
            name = WORKER if worker else known_name(process.name())
            if name is None:
                return None
            times = process.cpu_times()
            return pid, name, times.user + times.system, process.status() in STOPPED
    except psutil.Error:
        return None
