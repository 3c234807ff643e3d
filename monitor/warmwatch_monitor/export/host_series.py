"""The series of the machine itself, without labels; each is there where its value is known."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.exposition import Family
from warmwatch_monitor.model import HostReading


def families(host: HostReading | None) -> Iterator[Family]:
    """Every family that ``host`` has a value for; none where nothing was read."""
    if host is None:
        return
    for name, help, value in (
        ("memory_total_bytes", "Memory of the host.", host.memory_total_bytes),
        (
            "memory_available_bytes",
            "Memory that programs on the host can still get.",
            host.memory_available_bytes,
        ),
        ("load1", "The host's load average over a minute.", host.load_1m),
        ("cpus", "Logical CPUs of the host.", host.cpus),
    ):
        if value is None:
            continue
        family = Family(f"warmwatch_host_{name}", help, "gauge")
        family.add(family.name, {}, value)
        yield family
