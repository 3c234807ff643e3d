"""The values that flow through the monitor: readings, health, and the Snapshot made of them.

All are frozen: a source makes readings, the poller makes one Snapshot of them and publishes it by
one assignment, exports and views only read it. ``None`` is "not known", never 0. Monotonic times
are nanoseconds (``*_ns``); everything else is seconds, bytes, and seconds since the epoch.
"""

from __future__ import annotations

from warmwatch_monitor.model.machine import (
    ExportHealth,
    GpuReading,
    HostReading,
    ObservedTraining,
    ProcessReading,
    Signs,
    SourceHealth,
)
from warmwatch_monitor.model.records import (
    Compilation,
    Fallback,
    RecordReading,
    Refusal,
)
from warmwatch_monitor.model.samples import Sample
from warmwatch_monitor.model.snapshot import (
    RankView,
    RunView,
    Snapshot,
    Spending,
)

__all__ = [
    "Compilation",
    "ExportHealth",
    "Fallback",
    "GpuReading",
    "HostReading",
    "ObservedTraining",
    "ProcessReading",
    "RankView",
    "RecordReading",
    "Refusal",
    "RunView",
    "Sample",
    "Signs",
    "Snapshot",
    "SourceHealth",
    "Spending",
]
