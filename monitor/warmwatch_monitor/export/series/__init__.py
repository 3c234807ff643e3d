"""Series: one table of families with their samples, and the text of ``/metrics`` made of it."""

from __future__ import annotations

from warmwatch_monitor.export.series.collector import SnapshotCollector
from warmwatch_monitor.export.series.family import Distribution, Family
from warmwatch_monitor.export.series.labels import Labels
from warmwatch_monitor.export.series.rank import RANK_SERIES
from warmwatch_monitor.export.series.tables import families, render
from warmwatch_monitor.export.series.text import content_type

__all__ = [
    "RANK_SERIES",
    "Distribution",
    "Family",
    "Labels",
    "SnapshotCollector",
    "content_type",
    "families",
    "render",
]
