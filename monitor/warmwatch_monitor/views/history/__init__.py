"""The last hour, second by second, in bounded memory; fed with each Snapshot as it is published."""

from __future__ import annotations

from warmwatch_monitor.views.history.columns import columns, sample
from warmwatch_monitor.views.history.ring import MOST_GPUS, MOST_RANKS, SECONDS, History

__all__ = ["MOST_GPUS", "MOST_RANKS", "SECONDS", "History", "columns", "sample"]
