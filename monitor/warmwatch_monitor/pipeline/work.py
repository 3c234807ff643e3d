"""When a rank last worked, with or without steps: an evaluation does. Pure.

A :class:`Work` and the next readings of a rank's process and GPUs give the next one.

- A GPU that runs kernels at least half of the time works, unless its power is low: full
  utilization at low power is a collective that spins, and then nothing else counts, for the
  process that waits for it may spin as well.
- If its GPUs are idle, or it has none, a process works if it uses at least half a core.
- Missing readings prove nothing: without those of its GPUs, the process alone does not
  show whether the rank works or waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from warmwatch_monitor.model import GpuReading, ProcessReading
from warmwatch_monitor.model.machine import IDLE_RATIO, LOW_POWER_RATIO, WORKING_RATIO


class Work(Struct, frozen=True, kw_only=True):
    """Activity of one rank.

    Attributes:
        working_ns: the latest moment at which it was seen to work; 0 if there was none.
        cpu_seconds: of its process at the last reading; an equal value is not a new reading.
        busy_ns: the latest moment at which any of its processes or GPUs was busy, or readings were
        missing: in a hung compilation nothing is busy.
    """

    working_ns: int = 0
    busy_ns: int = 0
    cpu_seconds: float | None = None


def follow(
    work: Work,
    process: ProcessReading | None,
    gpus: Sequence[GpuReading],
    now_ns: int,
    *,
    uses_gpus: bool,
) -> Work:
    """``work`` updated with these readings. ``uses_gpus``: whether the rank reports GPUs."""
    busy = [gpu for gpu in gpus if (gpu.utilization_ratio or 0.0) >= WORKING_RATIO]
    computing = [gpu.at_ns for gpu in busy if not _spins(gpu)]
    known = all(gpu.utilization_ratio is not None for gpu in gpus) and bool(gpus or not uses_gpus)
    moment = 0
    if computing:
        moment = max(computing)
    elif not busy and known and process is not None and process.cpu_seconds != work.cpu_seconds:
        moment = now_ns if (process.cpu_ratio or 0.0) >= WORKING_RATIO else 0
    working_ns = max(work.working_ns, min(moment, now_ns))
    cpu_seconds = work.cpu_seconds if process is None else process.cpu_seconds
    busy_ns = work.busy_ns if is_idle(process, gpus) else now_ns
    after = Work(working_ns=working_ns, cpu_seconds=cpu_seconds, busy_ns=busy_ns)
    return work if after == work else after


def is_idle(process: ProcessReading | None, gpus: Sequence[GpuReading]) -> bool:
    """Whether process, workers, compilers and GPUs are all known and idle."""
    if process is None or process.cpu_ratio is None or process.workers_busy is None:
        return False
    at_it = process.workers_busy or any(one.busy is not False for one in process.compilers)
    if at_it or process.cpu_ratio >= IDLE_RATIO:
        return False
    return all(
        gpu.utilization_ratio is not None and gpu.utilization_ratio < IDLE_RATIO for gpu in gpus
    )


def _spins(gpu: GpuReading) -> bool:
    """Whether its power is so low that its kernels only wait; ``False`` if not known."""
    if gpu.power_watts is None or not gpu.power_limit_watts:
        return False
    return gpu.power_watts < LOW_POWER_RATIO * gpu.power_limit_watts
