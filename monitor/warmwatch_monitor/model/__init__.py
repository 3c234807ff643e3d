"""The values that flow through the monitor: readings, health, and the Snapshot made of them.

All are frozen: a source makes readings, the poller makes one Snapshot of them and publishes it by
one assignment, exports and views only read it. ``None`` is "not known", never 0. Monotonic times
are nanoseconds (``*_ns``); everything else is seconds, bytes, and seconds since the epoch.

Readings are what was read, as it was; of a rank, exports and views read its Figures and nothing
else. The closed lists of names are the record's own, and given on here.
"""

from __future__ import annotations

from warmwatch.record import CACHES, CATEGORIES, DISABLED, KINDS, MEMORY, PHASES, PROGRESS
from warmwatch_monitor.model.figures import (
    BUCKET_SECONDS,
    Agent,
    Compile,
    Counted,
    Figures,
    Lengths,
    Life,
    Log,
    Memory,
    OpenActivity,
    Progress,
    Steps,
    Underway,
    Warmups,
    WarmupSpan,
    Who,
    Workers,
)
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
    Beginning,
    Compilation,
    Cost,
    Fallback,
    FunctionCost,
    GraphBreak,
    Owner,
    Recompile,
    RecordReading,
    Refusal,
)
from warmwatch_monitor.model.samples import Sample
from warmwatch_monitor.model.snapshot import (
    RankView,
    RunView,
    Snapshot,
    Spending,
    all_warm,
    any_compiling,
)
from warmwatch_monitor.model.spread import Spread, spread

__all__ = [
    "BUCKET_SECONDS",
    "CACHES",
    "CATEGORIES",
    "DISABLED",
    "KINDS",
    "MEMORY",
    "PHASES",
    "PROGRESS",
    "Agent",
    "Beginning",
    "Compilation",
    "Compile",
    "Cost",
    "Counted",
    "ExportHealth",
    "Fallback",
    "Figures",
    "FunctionCost",
    "GpuReading",
    "GraphBreak",
    "HostReading",
    "Lengths",
    "Life",
    "Log",
    "Memory",
    "ObservedTraining",
    "OpenActivity",
    "Owner",
    "ProcessReading",
    "Progress",
    "RankView",
    "Recompile",
    "RecordReading",
    "Refusal",
    "RunView",
    "Sample",
    "Signs",
    "Snapshot",
    "SourceHealth",
    "Spending",
    "Spread",
    "Steps",
    "Underway",
    "WarmupSpan",
    "Warmups",
    "Who",
    "Workers",
    "all_warm",
    "any_compiling",
    "spread",
]
