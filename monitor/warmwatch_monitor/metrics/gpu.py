"""Metrics of a GPU.

Labels: ``uuid`` and ``gpu``, NVML's index of the board, which a MIG device shares with it. A series
exists only if its value is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warmwatch_monitor.metrics.families import (
    Family,
    Labels,
    Series,
    counter,
    counters,
    gauge,
    gauges,
)
from warmwatch_monitor.model import GpuReading

GPU_SERIES: tuple[Series[GpuReading], ...] = (
    gauge(
        "warmwatch_gpu_utilization_ratio",
        "Share of NVML's last sample period (1/6 to 1 s) in which any kernel ran: how often the "
        "GPU was used, not how much of it.",
        lambda gpu: gpu.utilization_ratio,
    ),
    gauge(
        "warmwatch_gpu_memory_utilization_ratio",
        "Share of NVML's last sample period in which device memory was read or written.",
        lambda gpu: gpu.memory_utilization_ratio,
    ),
    gauge(
        "warmwatch_gpu_sm_active_ratio",
        "How busy the streaming multiprocessors were since the last reading (GPM).",
        lambda gpu: gpu.sm_active_ratio,
    ),
    gauge(
        "warmwatch_gpu_tensor_active_ratio",
        "How busy the tensor cores were since the last reading (GPM).",
        lambda gpu: gpu.tensor_active_ratio,
    ),
    gauge(
        "warmwatch_gpu_dram_active_ratio",
        "Share of the device memory bandwidth used since the last reading (GPM).",
        lambda gpu: gpu.dram_active_ratio,
    ),
    gauge(
        "warmwatch_gpu_memory_used_bytes",
        "Device memory in use by all processes.",
        lambda gpu: gpu.memory_used_bytes,
    ),
    gauge("warmwatch_gpu_memory_total_bytes", "Device memory.", lambda gpu: gpu.memory_total_bytes),
    gauge("warmwatch_gpu_power_watts", "Power draw of the board.", lambda gpu: gpu.power_watts),
    gauge(
        "warmwatch_gpu_power_limit_watts",
        "Power limit that is enforced on the board.",
        lambda gpu: gpu.power_limit_watts,
    ),
    gauge(
        "warmwatch_gpu_temperature_celsius",
        "Temperature of the GPU.",
        lambda gpu: gpu.temperature_celsius,
    ),
    gauges(
        "warmwatch_gpu_clock_hertz",
        "Clock by domain.",
        "domain",
        (),
        lambda gpu: dict(gpu.clocks_hertz),
    ),
    counter(
        "warmwatch_gpu_energy_joules_total",
        "Energy that the board has used since the driver was loaded.",
        lambda gpu: gpu.energy_joules,
    ),
    counters(
        "warmwatch_gpu_ecc_errors_total",
        "ECC errors since the driver was loaded, by kind.",
        "kind",
        (),
        lambda gpu: dict(gpu.ecc_errors),
    ),
    counter(
        "warmwatch_gpu_xid_errors_total",
        "Critical XID errors since this monitor began to listen.",
        lambda gpu: gpu.xid_errors,
    ),
    gauges(
        "warmwatch_gpu_throttled",
        "1 for each reason that limits the clocks now, else 0; an idle GPU is not throttled.",
        "reason",
        (),
        lambda gpu: dict(gpu.throttled),
    ),
    gauge(
        "warmwatch_gpu_lost",
        "Whether the driver has lost the GPU: all its other series are absent then.",
        lambda gpu: gpu.trouble is not None,
    ),
)


def families(gpus: Sequence[GpuReading]) -> Iterator[Family]:
    """Every family of ``gpus``, those without a sample too."""
    labelled = [(Labels({"gpu": str(gpu.index), "uuid": gpu.uuid}), gpu) for gpu in gpus]
    info = Family(name="warmwatch_gpu", help="The GPU and its driver.", type="info")
    for labels, gpu in labelled:
        info.add(Labels({**labels.values, **_facts(gpu)}), 1)
    yield info
    for series in GPU_SERIES:
        yield series.family(labelled)


def _facts(gpu: GpuReading) -> dict[str, str]:
    """Labels of a GPU; a label is empty, which means absent, if its value is not known."""
    return {
        "name": gpu.name or "",
        "driver": gpu.driver or "",
        "pci_bus_id": gpu.pci_bus_id or "",
        "parent": gpu.parent or "",
        "profile": gpu.profile or "",
    }
