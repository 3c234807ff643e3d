"""Metrics: one table of metric families, written as Prometheus text or sent by OTLP.

A new metric is a figure (``figures/declared.py``), whose family ``series_of`` makes. Labels
``run`` and ``rank``: ``rank.py`` (state, process, GPUs it uses, end), ``compile.py``,
``training.py``. Labels
``gpu`` and ``uuid``: ``gpu.py``, what NVML reads. Others: ``host.py``, the host and the monitor;
``daemon.py``, the process of a daemon.
"""

from __future__ import annotations

from warmwatch_monitor.metrics.daemon import DaemonSeries
from warmwatch_monitor.metrics.families import Distribution, Family, Labels
from warmwatch_monitor.metrics.rank import RANK_SERIES
from warmwatch_monitor.metrics.tables import SnapshotCollector, families, render
from warmwatch_monitor.metrics.text import content_type

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
