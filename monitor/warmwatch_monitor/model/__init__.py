"""The values that flow through the monitor: readings, health, and the Snapshot made of them.

All are frozen: a source makes readings, the poller makes one Snapshot of them and publishes it by
one assignment, exports and views only read it. ``None`` is "not known", never 0. Monotonic times
are nanoseconds (``*_ns``); everything else is seconds, bytes, and seconds since the epoch.

Readings are what was read, as it was; of a rank, exports and views read its Figures and nothing
else. The closed lists of names, and stacks, are the record's own and given on here.
"""

from __future__ import annotations

from warmwatch.record import CACHES, CATEGORIES, DISABLED, KINDS, MEMORY, PHASES, PROGRESS
from warmwatch.record.stacks import INNERMOST, Frame, Stacks, ThreadStack
from warmwatch_monitor.model.baseline import Baseline, Gain, beyond_steady_seconds, gain
from warmwatch_monitor.model.compilations import (
    FEWEST_STEPS,
    OF_GRAPHS,
    Beginning,
    Compilation,
    Cost,
    FunctionCost,
    Recompile,
    VaryingDim,
    families,
)
from warmwatch_monitor.model.compile import Compile, Counted, Log, OpenActivity, Underway
from warmwatch_monitor.model.estimate import Done, Estimate, Precedent, Remembered
from warmwatch_monitor.model.figures import (
    BACKENDS,
    Agent,
    Figures,
    Life,
    Memory,
    Progress,
    Who,
    Workers,
)
from warmwatch_monitor.model.journal import CudagraphSkip, Fallback, GraphBreak, LongStep
from warmwatch_monitor.model.machine import (
    Compiler,
    ExportHealth,
    GpuReading,
    HostReading,
    ObservedTraining,
    ProcessReading,
    Signs,
    SourceHealth,
)
from warmwatch_monitor.model.owner import Owner
from warmwatch_monitor.model.records import (
    Death,
    RecordReading,
    Refusal,
    began_launch,
    last_sign_ns,
)
from warmwatch_monitor.model.samples import Sample
from warmwatch_monitor.model.snapshot import (
    RankView,
    RunView,
    Snapshot,
    Spending,
    all_warm,
    any_compiling,
    incomplete,
)
from warmwatch_monitor.model.spread import Spread, spread
from warmwatch_monitor.model.steps import (
    BUCKET_SECONDS,
    Lengths,
    Pauses,
    Slower,
    Steps,
    Warmups,
    WarmupSpan,
)
from warmwatch_monitor.model.worth import DTYPE, Utilization, Worth

__all__ = [
    "BACKENDS",
    "BUCKET_SECONDS",
    "CACHES",
    "CATEGORIES",
    "DISABLED",
    "DTYPE",
    "FEWEST_STEPS",
    "INNERMOST",
    "KINDS",
    "MEMORY",
    "OF_GRAPHS",
    "PHASES",
    "PROGRESS",
    "Agent",
    "Baseline",
    "Beginning",
    "Compilation",
    "Compile",
    "Compiler",
    "Cost",
    "Counted",
    "CudagraphSkip",
    "Death",
    "Done",
    "Estimate",
    "ExportHealth",
    "Fallback",
    "Figures",
    "Frame",
    "FunctionCost",
    "Gain",
    "GpuReading",
    "GraphBreak",
    "HostReading",
    "Lengths",
    "Life",
    "Log",
    "LongStep",
    "Memory",
    "ObservedTraining",
    "OpenActivity",
    "Owner",
    "Pauses",
    "Precedent",
    "ProcessReading",
    "Progress",
    "RankView",
    "Recompile",
    "RecordReading",
    "Refusal",
    "Remembered",
    "RunView",
    "Sample",
    "Signs",
    "Slower",
    "Snapshot",
    "SourceHealth",
    "Spending",
    "Spread",
    "Stacks",
    "Steps",
    "ThreadStack",
    "Underway",
    "Utilization",
    "VaryingDim",
    "WarmupSpan",
    "Warmups",
    "Who",
    "Workers",
    "Worth",
    "all_warm",
    "any_compiling",
    "began_launch",
    "beyond_steady_seconds",
    "families",
    "gain",
    "incomplete",
    "last_sign_ns",
    "spread",
]
