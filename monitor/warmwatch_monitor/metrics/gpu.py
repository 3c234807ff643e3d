"""Metrics of a GPU.

Labels: ``uuid`` and ``gpu``, NVML's index of the board, which a MIG device shares with it. A series
exists only if its value is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from warmwatch_monitor.metrics.families import Family, Labels, Series, gauge, series_of
from warmwatch_monitor.model import GpuReading


def _by_name(name: str, gpu: GpuReading) -> dict[str, float]:
    return dict(getattr(gpu, name))


_BY_NAME = ("clocks_hertz", "ecc_errors", "throttled")
GPU_SERIES: tuple[Series[GpuReading], ...] = (
    *series_of(
        GpuReading,
        lambda gpu: gpu,
        {name: partial(_by_name, name) for name in _BY_NAME},
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
