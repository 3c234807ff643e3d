"""The series of a GPU: one table, from which ``/metrics`` is made.

Labels: ``uuid`` and ``gpu``, NVML's index of the board, which a MIG device shares with it. A series
is there where its value is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from warmwatch_monitor.export.exposition import Family
from warmwatch_monitor.model import GpuReading

# One value, or one for each value of the series' own label.
Values = float | None | Iterable[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeries:
    """One family; ``label`` is its own, where ``read`` gives pairs."""

    name: str
    type: str
    help: str
    read: Callable[[GpuReading], Values]
    label: str | None = None


def _gauge(
    name: str, help: str, read: Callable[[GpuReading], Values], label: str | None = None
) -> GpuSeries:
    return GpuSeries(name=f"warmwatch_gpu_{name}", type="gauge", help=help, read=read, label=label)


def _counter(
    name: str, help: str, read: Callable[[GpuReading], Values], label: str | None = None
) -> GpuSeries:
    name = f"warmwatch_gpu_{name}"
    return GpuSeries(name=name, type="counter", help=help, read=read, label=label)


GPU_SERIES = (
    _gauge(
        "utilization_ratio",
        "Share of NVML's last sample period (1/6 to 1 s) in which any kernel ran: how often the "
        "GPU was used, not how much of it.",
        lambda gpu: gpu.utilization_ratio,
    ),
    _gauge(
        "memory_utilization_ratio",
        "Share of NVML's last sample period in which device memory was read or written.",
        lambda gpu: gpu.memory_utilization_ratio,
    ),
    _gauge(
        "sm_active_ratio",
        "How busy the streaming multiprocessors were since the last reading (GPM).",
        lambda gpu: gpu.sm_active_ratio,
    ),
    _gauge(
        "tensor_active_ratio",
        "How busy the tensor cores were since the last reading (GPM).",
        lambda gpu: gpu.tensor_active_ratio,
    ),
    _gauge(
        "dram_active_ratio",
        "Device memory bandwidth used since the last reading, of what there is (GPM).",
        lambda gpu: gpu.dram_active_ratio,
    ),
    _gauge(
        "memory_used_bytes",
        "Device memory in use by all processes.",
        lambda gpu: gpu.memory_used_bytes,
    ),
    _gauge("memory_total_bytes", "Device memory.", lambda gpu: gpu.memory_total_bytes),
    _gauge("power_watts", "Power draw of the board.", lambda gpu: gpu.power_watts),
    _gauge(
        "power_limit_watts",
        "Power limit that is enforced on the board.",
        lambda gpu: gpu.power_limit_watts,
    ),
    _gauge("temperature_celsius", "Temperature of the GPU.", lambda gpu: gpu.temperature_celsius),
    _gauge("clock_hertz", "Clock by domain.", lambda gpu: gpu.clocks_hertz, "domain"),
    _counter(
        "energy_joules_total",
        "Energy that the board has used since the driver was loaded.",
        lambda gpu: gpu.energy_joules,
    ),
    _counter(
        "ecc_errors_total",
        "ECC errors since the driver was loaded, by kind.",
        lambda gpu: gpu.ecc_errors,
        "kind",
    ),
    _counter(
        "xid_errors_total",
        "Critical XID errors since this monitor began to listen.",
        lambda gpu: gpu.xid_errors,
    ),
    _gauge(
        "throttled",
        "1 for what holds the clocks down now, by reason; an idle GPU is not throttled.",
        lambda gpu: gpu.throttled,
        "reason",
    ),
    _gauge(
        "lost",
        "Whether the driver has lost the GPU, so that nothing else is known of it.",
        lambda gpu: gpu.trouble is not None,
    ),
)


def families(gpus: Sequence[GpuReading]) -> Iterator[Family]:
    """Every family of ``gpus``, those without a series too."""
    labels = [{"gpu": str(gpu.index), "uuid": gpu.uuid} for gpu in gpus]
    info = Family("warmwatch_gpu", "What the GPU is.", "info")
    for gpu, own in zip(gpus, labels, strict=True):
        info.add("warmwatch_gpu_info", {**own, **_facts(gpu)}, 1)
    yield info
    for series in GPU_SERIES:
        family = Family(series.name.removesuffix("_total"), series.help, series.type)
        for gpu, own in zip(gpus, labels, strict=True):
            _add(family, series, gpu, own)
        yield family


def _add(family: Family, series: GpuSeries, gpu: GpuReading, labels: dict[str, str]) -> None:
    values = series.read(gpu)
    if values is None:
        return
    if isinstance(values, (int, float)):
        family.add(series.name, labels, values)
        return
    for value, number in values:
        assert series.label is not None, f"{series.name} gives pairs, so it has a label"
        family.add(series.name, {series.label: value, **labels}, number)


def _facts(gpu: GpuReading) -> dict[str, str]:
    """A label is empty, which is to say absent, where its fact is not known."""
    return {
        "name": gpu.name or "",
        "driver": gpu.driver or "",
        "pci_bus_id": gpu.pci_bus_id or "",
        "parent": gpu.parent or "",
        "profile": gpu.profile or "",
    }
