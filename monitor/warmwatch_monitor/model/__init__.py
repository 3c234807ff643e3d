"""The frozen values that flow through the monitor: readings, health, figures, Snapshot.

All are frozen: a source makes readings, the poller makes one Snapshot of them and publishes it by
one assignment, exports and views only read it. ``None`` is "not known", never 0. Monotonic times
are nanoseconds (``*_ns``); everything else is seconds, bytes, and seconds since the epoch.

Readings hold raw data. For a rank, exports and views use only its Figures.
A change begins in ``machine.py`` (a reading), ``figures.py`` (a figure of a rank), or
``snapshot.py`` (what is published).
The closed lists of names, and the stack types, are re-exported from the record format.

A module is loaded when one of its names is used: a host without records needs neither figures nor
the record format.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmwatch.shared.record import (
        CACHES,
        DISABLED,
        HALF_A_BIN,
        KINDS,
        MEMORY,
        PHASES,
        PROGRESS,
        REASONS,
    )
    from warmwatch.shared.record.stack_file import INNERMOST, Frame, Stacks, ThreadStack
    from warmwatch_monitor.figures.compile import (
        OF_GRAPHS,
        Compile,
        CompilingWorkers,
        Counted,
        Estimate,
        OpenActivity,
        Workers,
    )
    from warmwatch_monitor.figures.machine import (
        Compiler,
        ExportHealth,
        Host,
        Refusal,
        SourceHealth,
    )
    from warmwatch_monitor.figures.rank import (
        LimitedBy,
        MemoryGrowth,
        Place,
        Slower,
        SlowerPeriod,
        WorkersMemory,
    )
    from warmwatch_monitor.figures.training import BACKENDS, Pauses, WarmupSpan
    from warmwatch_monitor.model.causes import SlowRank, slow_rank, spread, with_laggard
    from warmwatch_monitor.model.figures import (
        BUCKET_SECONDS,
        DTYPE,
        Agent,
        Done,
        EarlierWarmup,
        Figures,
        Gain,
        Lengths,
        Life,
        Log,
        Memory,
        Progress,
        RankHistory,
        Steps,
        Stretch,
        Underway,
        Utilization,
        Warmups,
        Who,
        Worth,
        beyond_steady_seconds,
    )
    from warmwatch_monitor.model.journal import (
        Beginning,
        CacheLookup,
        Compilation,
        Cost,
        CudagraphSkip,
        Fallback,
        GraphBreak,
        LongStep,
        Recompile,
        Spill,
    )
    from warmwatch_monitor.model.machine import (
        GpuReading,
        ObservedTraining,
        ProcessReading,
        Sample,
        Signs,
    )
    from warmwatch_monitor.model.records import (
        BEGIN,
        FEWEST_STEPS,
        CacheBypass,
        Death,
        FunctionCost,
        Outside,
        Owner,
        Recordings,
        RecordReading,
        VaryingDim,
        WorkerCompilations,
        began_launch,
        families,
        is_present,
        last_sign_ns,
        owned,
    )
    from warmwatch_monitor.model.snapshot import (
        RankView,
        RecordRoom,
        RunView,
        Snapshot,
        Spending,
        all_warm,
        any_compiling,
        incomplete,
        limit_of,
        why_left_out,
    )

# the one that loads least comes first
_MODULES = (
    *(f"warmwatch_monitor.figures.{name}" for name in ("machine", "rank", "training", "compile")),
    *(f"{__name__}.{name}" for name in ("machine", "snapshot")),
    "warmwatch.shared.record",
    *(f"{__name__}.{name}" for name in ("journal", "records", "figures", "causes")),
    "warmwatch.shared.record.stack_file",
)


def __getattr__(name: str) -> Any:
    """A name that is not here yet: all names of the first module that has it are from now on."""
    if not name.startswith("_") and f"{__name__}.{name}" not in _MODULES:
        for module in _MODULES:
            values = vars(import_module(module))
            if name in values:
                globals().update((key, values[key]) for key in values if not key.startswith("_"))
                return values[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
