"""How what is sent out fares; nothing where nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warmwatch_monitor.export.exposition import Family
from warmwatch_monitor.model import ExportHealth


def families(exports: Sequence[ExportHealth]) -> Iterator[Family]:
    """Both families; each export has a sample where its value is known."""
    up = Family("warmwatch_export_up", "Whether what was last sent was taken.", "gauge")
    last = Family(
        "warmwatch_export_last_success_timestamp_seconds",
        "When something was last sent and taken.",
        "gauge",
    )
    for health in exports:
        for family, value in ((up, health.up), (last, health.last_success)):
            if value is not None:
                family.add(family.name, {"export": health.export}, value)
    yield from (up, last)
