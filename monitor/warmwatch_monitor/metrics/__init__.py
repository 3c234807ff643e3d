"""Metrics: one table of metric families, written as Prometheus text or sent by OTLP.

A new metric is one entry in a table, and the table decides its labels. Labels ``run`` and ``rank``:
``rank.py`` (state, process, GPUs it uses, end), ``compile.py``, ``training.py`` (steps, memory,
pauses). Labels ``gpu`` and ``uuid``: ``gpu.py``, what NVML reads. Others: ``host.py``, the host and
the monitor. ``support.reference`` writes its line in the docs.
"""

from __future__ import annotations

from warmwatch_monitor.metrics.families import Distribution, Family, Labels
from warmwatch_monitor.metrics.rank import RANK_SERIES
from warmwatch_monitor.metrics.tables import SnapshotCollector, families, render
from warmwatch_monitor.metrics.text import content_type

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
