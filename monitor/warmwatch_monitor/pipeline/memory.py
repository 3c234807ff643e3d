"""Memory that grows while a rank trains, and compile workers that use up memory. Pure, bounded.

:func:`follow` adds the memory at each poll of a warm rank to *buckets* of time, each with the least
value seen in it: a peak within a step or an evaluation is no growth. If there are too many buckets,
two become one, so a history covers the time since the warm-up at any length.

:func:`growth` looks at the later half of that time. Memory grows if each quarter of it adds to the
memory, and the last one as much as the others. A cache that levels out adds less in each quarter.
Host memory is the process's private memory: pages of mapped files do not count. GPU memory is the
whole device's, so it counts only if no other process is on the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.record import Slot
from warmwatch_monitor.figures.machine import Host
from warmwatch_monitor.figures.rank import MemoryGrowth, WorkersMemory
from warmwatch_monitor.model.journal import Compilation
from warmwatch_monitor.model.machine import GpuReading, ProcessReading

_POLL_NS = 9 * 10**8  # processes and GPUs are read once a second
_MOST_BUCKETS = 32
_FIRST_BUCKET_NS = 2 * 10**9
_FEWEST_BUCKETS, _LEAST_NS, _FEWEST_STEPS = 8, 60 * 10**9, 20  # of the later half
_LEAST_BYTES, _LEAST_SHARE = 64 * 2**20, 0.03  # added in the later half, and of its first level
_EACH_QUARTER, _LAST_QUARTER = 0.5, 0.85  # of the mean quarter
# Once found. Allocators take memory in pieces of 2 to 64 MiB, so the same leak fills its quarters
# unevenly; memory that has levelled out adds nothing to the last one.
_HELD_QUARTER, _HELD_LAST, _HELD_LEAST = -0.1, 0.2, 0.5
_OFF_THE_LINE = 0.15  # of the growth in the later half: earlier buckets that far off did not grow
USED_UP, _OF_WORKERS = 0.9, 0.1  # of the limit


class Bucket(Struct, frozen=True):
    """The least memory in a time, in bytes; ``None`` if not known."""

    ended_ns: int
    step: int  # the last one in it
    host: int | None
    gpu: int | None


class MemoryHistory(Struct, frozen=True, kw_only=True):
    """The state between two polls: complete buckets, their length, and the one being filled."""

    buckets: tuple[Bucket, ...] = ()
    length_ns: int = _FIRST_BUCKET_NS
    began_ns: int = 0  # of the bucket being filled; 0: there is none
    filling: Bucket | None = None


def follow(
    history: MemoryHistory | None,
    slot: Slot,
    now_ns: int,
    process: ProcessReading | None,
    gpus: Sequence[GpuReading],
) -> MemoryHistory:
    """``history`` with the memory of this poll. Only time in which the rank trains counts."""
    history = history or MemoryHistory()
    steps, counts = slot.steps.steps, slot.compile
    if history.filling is not None and steps < history.filling.step:
        history = MemoryHistory()
    pauses = (counts.evaluating_since_ns, counts.saving_since_ns, counts.active_since_ns)
    if not counts.warmups or any(pauses) or process is None:
        return history
    if history.filling is not None and 0 <= now_ns - history.filling.ended_ns < _POLL_NS:
        return history
    now = Bucket(now_ns, steps, process.private_bytes, _gpu_bytes(gpus))
    if history.filling is None:
        return replace(history, began_ns=now_ns, filling=now)
    filling = _merged(history.filling, now)
    if now_ns - history.began_ns < history.length_ns:
        return replace(history, filling=filling)
    buckets, length_ns = (*history.buckets, filling), history.length_ns
    if len(buckets) >= _MOST_BUCKETS:
        pairs = zip(buckets[::2], buckets[1::2], strict=False)
        buckets, length_ns = tuple(_merged(*pair) for pair in pairs), 2 * length_ns
    return MemoryHistory(buckets=buckets, length_ns=length_ns, began_ns=now_ns, filling=now)


def _gpu_bytes(gpus: Sequence[GpuReading]) -> int | None:
    """Memory in use on the rank's GPUs, if no other process is on them."""
    alone = (gpu.memory_used_bytes for gpu in gpus if len(gpu.processes or ()) == 1)
    used = [used_bytes for used_bytes in alone if used_bytes is not None]
    return sum(used) if gpus and len(used) == len(gpus) else None


def _merged(bucket: Bucket, later: Bucket) -> Bucket:
    def least(before: int | None, after: int | None) -> int | None:
        return None if before is None or after is None else min(before, after)

    host, gpu = least(bucket.host, later.host), least(bucket.gpu, later.gpu)
    return Bucket(later.ended_ns, later.step, host, gpu)


def growth(
    history: MemoryHistory,
    left_bytes: int | None = None,
    gpus: Sequence[GpuReading] = (),
    compilations: Iterable[Compilation] = (),
    held: MemoryGrowth | None = None,
) -> MemoryGrowth | None:
    """How memory grows; ``None`` if it does not, or not for long enough. A GPU's comes first.

    ``left_bytes``: of host memory. ``held``: the growth until now, which ends at lower limits than
    it began at.
    """
    for memory in ("gpu", "host"):
        series = _series(history.buckets, memory)
        is_held = held is not None and held.of == memory
        if (growth := _growth(memory, series, is_held=is_held)) is not None:
            recompiled = _recompiled(series, growth.since_step, compilations)
            return with_left(replace(growth, recompiled=recompiled), left_bytes, gpus)
    return None


def left_on_host(host: Host | None, process: ProcessReading | None) -> int | None:
    """Host memory that a process may still get: the kernel kills it at its cgroup's limit too."""
    limits = (
        host.memory_available_bytes if host else None,
        process.memory_left_bytes if process else None,
    )
    return min((left for left in limits if left is not None), default=None)


def with_left(
    growth: MemoryGrowth, left_bytes: int | None, gpus: Sequence[GpuReading]
) -> MemoryGrowth:
    """``growth`` with the time until the memory that is free now is used up."""
    if growth.of == "gpu":
        totals = [(gpu.memory_total_bytes, gpu.memory_used_bytes) for gpu in gpus]
        free = [total - used for total, used in totals if total is not None and used is not None]
        left_bytes = sum(free) if free else None
    left = None if left_bytes is None else left_bytes / growth.bytes_per_second
    return replace(growth, left_seconds=left)


class _Row(Struct, frozen=True):
    """The memory of one kind in a bucket."""

    at_ns: int
    step: int
    bytes: int


def _series(buckets: Sequence[Bucket], memory: str) -> list[_Row]:
    """The latest buckets in which this memory is known without a gap."""
    rows = []
    for bucket in reversed(buckets):
        used = bucket.gpu if memory == "gpu" else bucket.host
        if used is None:
            break
        rows.append(_Row(bucket.ended_ns, bucket.step, used))
    return rows[::-1]


def _growth(
    memory: Literal["host", "gpu"], series: Sequence[_Row], *, is_held: bool
) -> MemoryGrowth | None:
    half = series[len(series) // 2 :]
    if len(half) < _FEWEST_BUCKETS:
        return None
    first, last = half[0], half[-1]
    added, took_ns, steps = (
        last.bytes - first.bytes,
        last.at_ns - first.at_ns,
        last.step - first.step,
    )
    least = _HELD_LEAST if is_held else 1.0
    if took_ns < least * _LEAST_NS or steps < least * _FEWEST_STEPS:
        return None
    if added < least * max(_LEAST_BYTES, _LEAST_SHARE * first.bytes):
        return None
    marks = [half[round(i * (len(half) - 1) / 4)] for i in range(5)]
    rates = [
        (later.bytes - row.bytes) / (later.at_ns - row.at_ns) for row, later in pairwise(marks)
    ]
    mean = added / took_ns
    each, latest = (_HELD_QUARTER, _HELD_LAST) if is_held else (_EACH_QUARTER, _LAST_QUARTER)
    if min(rates) < each * mean or rates[-1] < latest * mean:
        return None
    began = _began(series[: -len(half)], first, mean, _OFF_THE_LINE * added)
    return MemoryGrowth(
        of=memory,
        bytes_per_second=mean * 1e9,
        bytes_per_step=added / steps,
        since_step=began.step,
        grown_bytes=last.bytes - began.bytes,
    )


def _began(earlier: Sequence[_Row], first: _Row, mean: float, off: float) -> _Row:
    """The earliest bucket from which on all lie on the line of the later half.

    ``first``: of that half, with the slope ``mean``. ``off``: the bytes that are off the line.
    """
    began = first
    for row in reversed(earlier):
        line = first.bytes - mean * (first.at_ns - row.at_ns)
        if abs(row.bytes - line) > off:
            break
        began = row
    return began


def _recompiled(
    series: Sequence[_Row], step: int, compilations: Iterable[Compilation]
) -> tuple[str, ...]:
    """Functions that compiled within one bucket of the one in which the growth began."""
    at = next((index for index, row in enumerate(series) if row.step == step), 0)
    since, until = series[max(0, at - 1)].at_ns, series[min(at + 1, len(series) - 1)].at_ns
    names = (
        compilation.name
        for compilation in compilations
        if since <= compilation.at_ns <= until and compilation.after_warm
    )
    return tuple(dict.fromkeys(name for name in names if name))


def workers_memory(process: ProcessReading | None) -> WorkersMemory | None:
    """Memory of the compile workers, if nearly all memory is used and much of it is theirs."""
    memory = None if process is None else process.workers_memory
    if memory is None or memory.used_bytes < USED_UP * memory.limit_bytes:
        return None
    return memory if memory.workers_bytes >= _OF_WORKERS * memory.limit_bytes else None
