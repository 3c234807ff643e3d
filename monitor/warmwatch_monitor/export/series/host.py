"""The series of the machine itself, without labels; each is there where its value is known."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.series.family import Family
from warmwatch_monitor.export.series.labels import Labels
from warmwatch_monitor.export.series.table import Series, gauge
from warmwatch_monitor.model import HostReading

HOST_SERIES: tuple[Series[HostReading], ...] = (
    gauge(
        "warmwatch_host_memory_total_bytes",
        "Memory of the host.",
        lambda host: host.memory_total_bytes,
    ),
    gauge(
        "warmwatch_host_memory_available_bytes",
        "Memory that programs on the host can still get.",
        lambda host: host.memory_available_bytes,
    ),
    gauge(
        "warmwatch_host_load1",
        "The host's load average over a minute.",
        lambda host: host.load_1m,
    ),
    gauge("warmwatch_host_cpus", "Logical CPUs of the host.", lambda host: host.cpus),
    gauge(
        "warmwatch_host_pci_gpus",
        "NVIDIA GPUs on the host's PCI bus, whether or not their driver works.",
        lambda host: host.pci_gpus,
    ),
)


def families(host: HostReading | None) -> Iterator[Family]:
    """Every family of ``host``, those without a sample too."""
    hosts = [] if host is None else [(Labels({}), host)]
    for series in HOST_SERIES:
        yield series.family(hosts)
