"""Metrics: one table of metric families, written as Prometheus text or sent by OTLP.

A new metric is a figure (``figures/declared.py``), whose family ``series_of`` makes. Labels
``run`` and ``rank``: ``rank.py``. All others, of GPUs, host, monitor and daemon: ``tables.py``.
"""

from __future__ import annotations

from warmwatch_monitor.metrics.families import Distribution, Family, Labels, content_type
from warmwatch_monitor.metrics.rank import RANK_SERIES
from warmwatch_monitor.metrics.tables import DaemonSeries, SnapshotCollector, families, render

__all__ = [
    "RANK_SERIES",
    "DaemonSeries",
    "Distribution",
    "Family",
    "Labels",
    "SnapshotCollector",
    "content_type",
    "families",
    "render",
]
