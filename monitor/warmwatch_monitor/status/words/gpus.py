"""GPU activity in words: it links the compiler's state to the hardware's. Pure.

Unknown values are omitted; utilization is a momentary sample of whether any kernel ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warmwatch_monitor.model.machine import (
    HARMLESS,
    IDLE_RATIO,
    LOW_POWER_RATIO,
    WORKING_RATIO,
    GpuReading,
)
from warmwatch_monitor.model.snapshot import RunView

FULL_RATIO = 0.9
_SETTLED = 2.5  # seconds: an average of one, read up to a second ago


def of_run(run: RunView) -> tuple[GpuReading, ...]:
    """The GPUs of all its ranks here, each once."""
    gpus = {gpu.uuid: gpu for view in run.ranks for gpu in view.gpus}
    return tuple(sorted(gpus.values(), key=lambda gpu: (gpu.index, gpu.uuid)))


def at_work(gpus: Sequence[GpuReading]) -> str:
    """``GPU 0 at 99 %, 686 W``; of several the range and the sum."""
    parts = [_use(gpus), _power(gpus)]
    text = ", ".join(part for part in parts if part)
    return f"{_named(gpus)} at {text}" if text else ""


def training(gpus: Sequence[GpuReading], since_seconds: float | None) -> str:
    """``at_work`` of a run that trains, once the figures can be those of its steps.

    ``since_seconds``: since the compiler last worked or a long gap between two steps ended;
    ``None`` if neither is known. Before NVML's averages have settled they show a GPU
    that was idle, next to the real speed.
    """
    return "" if since_seconds is not None and since_seconds < _SETTLED else at_work(gpus)


def waiting(gpus: Sequence[GpuReading], since_seconds: float) -> str:
    """``the GPU waits at 118 W`` if all are idle, else their load.

    ``since_seconds``: for how long the compiler has been at work. NVML's utilization and power are
    averages of up to a second: until they settle, they still show the previous steps.
    """
    if since_seconds < _SETTLED:
        return ""
    if not _all_idle(gpus):
        return at_work(gpus)
    subject = "the GPU waits" if len(gpus) == 1 else f"the {len(gpus)} GPUs wait"
    power = _power(gpus)
    return f"{subject} at {power}" if power and not any(map(_works_hard, gpus)) else subject


def meanwhile(gpus: Sequence[GpuReading]) -> str:
    """The GPU load of a rank without steps, and its possible cause."""
    text, uses = at_work(gpus), _uses(gpus)
    if not text or not uses:
        return text
    if _all_idle(gpus):
        return f"{text}, idle: perhaps it waits for data"
    if min(uses) >= FULL_RATIO and _low_power(gpus):
        return f"{text}, full utilization at low power: perhaps it waits in a collective"
    return f"{text}, busy: perhaps an evaluation" if max(uses) >= FULL_RATIO else text


def computing(gpus: Sequence[GpuReading]) -> str:
    """``its GPU works (98 %, 650 W)``; empty if none does, or they only spin in a collective."""
    busy = [gpu for gpu in gpus if (gpu.utilization_ratio or 0.0) >= WORKING_RATIO]
    if not busy or _low_power(busy):
        return ""
    figures = ", ".join(part for part in (_use(busy), _power(busy)) if part)
    return f"its GPU works ({figures})" if len(busy) == 1 else f"its GPUs work ({figures})"


def evidence(gpus: Sequence[GpuReading]) -> Iterator[str]:
    """A line for each GPU, with every figure of its load."""
    for gpu in gpus:
        parts = [
            _percent("utilization", gpu.utilization_ratio),
            _watts(gpu),
            _percent("SM", gpu.sm_active_ratio),
            _percent("tensor cores", gpu.tensor_active_ratio),
            _percent("memory bandwidth", gpu.dram_active_ratio),
            _reduced_clocks(gpu),
        ]
        text = ", ".join(part for part in parts if part)
        if gpu.trouble or text:
            yield f"GPU {gpu.index}: {gpu.trouble or text}"


def _named(gpus: Sequence[GpuReading]) -> str:
    return f"GPU {gpus[0].index}" if len(gpus) == 1 else f"{len(gpus)} GPUs"


def _uses(gpus: Sequence[GpuReading]) -> list[float]:
    return [gpu.utilization_ratio for gpu in gpus if gpu.utilization_ratio is not None]


def _all_idle(gpus: Sequence[GpuReading]) -> bool:
    uses = _uses(gpus)
    return bool(uses) and len(uses) == len(gpus) and max(uses) < IDLE_RATIO


def _use(gpus: Sequence[GpuReading]) -> str:
    uses = sorted(round(100 * use) for use in _uses(gpus))
    if not uses:
        return ""
    return f"{uses[0]} %" if uses[0] == uses[-1] else f"{uses[0]} to {uses[-1]} %"


def _power(gpus: Sequence[GpuReading]) -> str:
    """The sum; empty unless all GPUs report their power."""
    watts = [gpu.power_watts for gpu in gpus if gpu.power_watts is not None]
    if not watts or len(watts) != len(gpus):
        return ""
    total = sum(watts)
    return f"{total:.0f} W" if total < 1000 else f"{total / 1000:.1f} kW"


def _works_hard(gpu: GpuReading) -> bool:
    """Whether its power, if known, shows that it works; utilization alone is not enough."""
    watts, limit = gpu.power_watts, gpu.power_limit_watts
    return bool(watts and limit and watts >= LOW_POWER_RATIO * limit)


def _low_power(gpus: Sequence[GpuReading]) -> bool:
    pairs = [(gpu.power_watts, gpu.power_limit_watts) for gpu in gpus]
    return all(power and limit and power < LOW_POWER_RATIO * limit for power, limit in pairs)


def _percent(what: str, ratio: float | None) -> str:
    return "" if ratio is None else f"{what} {100 * ratio:.0f} %"


def _reduced_clocks(gpu: GpuReading) -> str:
    reasons = ", ".join(name for name, holds in gpu.throttled if holds and name not in HARMLESS)
    return f"reduced clocks ({reasons})" if reasons else ""


def _watts(gpu: GpuReading) -> str:
    if gpu.power_watts is None:
        return ""
    limit = f" of {gpu.power_limit_watts:.0f} W" if gpu.power_limit_watts else ""
    return f"{gpu.power_watts:.0f} W{limit}" if not limit else f"{gpu.power_watts:.0f}{limit}"
