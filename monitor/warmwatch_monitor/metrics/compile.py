"""Metrics of a rank's compiler, in the order of ``/metrics``.

Names, types and labels are public.
"""

from __future__ import annotations

from warmwatch_monitor.metrics.families import Series, counter, counters, gauge, gauges, one_hot
from warmwatch_monitor.model import (
    CACHES,
    DISABLED,
    KINDS,
    PHASES,
    PROGRESS,
    REASONS,
    Counted,
    RankView,
)


def _workers(view: RankView) -> dict[str, float] | None:
    workers = view.figures.workers
    return None if workers is None else {"busy": workers.busy, "idle": workers.idle}


_OFF_BY = DISABLED[1:]


def _disabled(view: RankView) -> dict[str, float] | None:
    if "disabled" in view.figures.agent.missing:
        return None
    return one_hot([view.figures.compile.disabled], _OFF_BY)


def _start(view: RankView) -> float | None:
    activity = view.figures.compile.open if view.judgement.compiling else None
    return activity.began_at if activity else None


def _left(view: RankView) -> float | None:
    estimate = view.estimate if view.judgement.compiling else None
    return estimate.left_seconds if estimate else None


def _counted(view: RankView) -> Counted | None:
    activity = view.figures.compile.open if view.judgement.compiling else None
    return activity.counted if activity else None


COMPILE_SERIES: tuple[Series[RankView], ...] = (
    gauges(
        "warmwatch_compile_phase",
        "1 for the phase of the compile activity in progress, 0 for the others.",
        "phase",
        PHASES,
        lambda view: one_hot([view.judgement.phase], PHASES),
    ),
    gauges(
        "warmwatch_compile_progress_done",
        "Items, such as kernels, that the activity in progress has finished; absent without any.",
        "of",
        PROGRESS,
        lambda view: {known.of: known.done} if (known := _counted(view)) else None,
    ),
    gauges(
        "warmwatch_compile_progress_planned",
        "Items of the compile activity in progress in total; absent without any.",
        "of",
        PROGRESS,
        lambda view: {known.of: known.total} if (known := _counted(view)) else None,
    ),
    gauge(
        "warmwatch_compile_start_timestamp_seconds",
        "When the compile activity in progress began; absent where none is.",
        _start,
    ),
    gauge(
        "warmwatch_compiling_start_timestamp_seconds",
        "When the first compile activity since the last step of the rank began; "
        "absent where none has.",
        lambda view: one.began_at if (one := view.figures.progress.stretch) else None,
    ),
    gauge(
        "warmwatch_compile_end_timestamp_seconds",
        "When the last compile activity ended; absent where none has.",
        lambda view: view.figures.compile.last_end_at,
    ),
    gauge(
        "warmwatch_compile_limit_seconds",
        "How long one compile activity of the rank may take before it counts as long.",
        lambda view: view.figures.progress.compile_limit_seconds,
    ),
    gauge(
        "warmwatch_compile_left_seconds",
        "Estimated time left of what compiles now, from earlier compilations of the same; absent "
        "without one, and once it takes longer than all of them.",
        _left,
    ),
    counters(
        "warmwatch_compile_seconds_total",
        "Time spent on compile activity by phase, the activity in progress included.",
        "phase",
        PHASES,
        lambda view: view.figures.compile.phase_seconds,
    ),
    counters(
        "warmwatch_compilations_total",
        "Compilations by kind.",
        "kind",
        KINDS,
        lambda view: view.figures.compile.compilations,
    ),
    counter(
        "warmwatch_graphs_total",
        "Graphs captured by Dynamo.",
        lambda view: view.figures.compile.graphs,
    ),
    counter(
        "warmwatch_graph_breaks_total",
        "Graph breaks, branches on a tensor and functions left to Python included.",
        lambda view: view.figures.compile.graph_breaks,
    ),
    counter(
        "warmwatch_compile_failures_total",
        "Compilations that failed.",
        lambda view: view.figures.compile.failures,
    ),
    counter(
        "warmwatch_compile_fallbacks_total",
        "Frames that hit the recompile limit: what was compiled still runs, "
        "new inputs run eagerly.",
        lambda view: view.figures.compile.fallbacks,
    ),
    counter(
        "warmwatch_compile_wrappers_total",
        "Functions and modules that the program passed to torch.compile.",
        lambda view: view.figures.compile.wrappers,
    ),
    gauges(
        "warmwatch_compile_disabled",
        "1 for what turns compilation off: TORCHDYNAMO_DISABLE, a stance, a setting; else 0.",
        "by",
        _OFF_BY,
        _disabled,
    ),
    counter(
        "warmwatch_cudagraph_skips_total",
        "How often requested CUDA graphs were skipped.",
        lambda view: view.figures.compile.cudagraph_skips,
    ),
    counter(
        "warmwatch_compile_background_seconds_total",
        "Time in which other threads compiled while steps were completed, added up over threads.",
        lambda view: view.figures.compile.background_seconds,
    ),
    counters(
        "warmwatch_recompiles_total",
        "Recompiles by the category of their reason.",
        "category",
        REASONS,
        lambda view: view.figures.compile.recompiles,
    ),
    counter(
        "warmwatch_recompiles_after_warm_total",
        "Recompiles, also by torch._dynamo.reset(), of a rank that had been warm before.",
        lambda view: view.figures.compile.recompiles_after_warm,
    ),
    counters(
        "warmwatch_compile_cache_hits_total",
        "Compile cache hits by cache.",
        "cache",
        CACHES,
        lambda view: view.figures.compile.cache_hits,
    ),
    counters(
        "warmwatch_compile_cache_misses_total",
        "Compile cache misses by cache.",
        "cache",
        CACHES,
        lambda view: view.figures.compile.cache_misses,
    ),
    gauges(
        "warmwatch_compile_workers",
        "Compile worker processes of the rank: busy where their CPU time grows, else idle.",
        "state",
        ("busy", "idle"),
        _workers,
    ),
    counter(
        "warmwatch_compile_gpu_seconds_total",
        "Time for which the rank's GPUs were held while it compiled: compile time times GPUs.",
        lambda view: view.compile_gpu_seconds,
    ),
    counter(
        "warmwatch_compile_energy_joules_total",
        "Energy of the rank's GPUs while it compiled, since this monitor first saw it.",
        lambda view: view.compile_joules,
    ),
    gauge(
        "warmwatch_clean_step_energy_joules",
        "Energy of the rank's GPUs for a clean step, the mean since this monitor first saw it.",
        lambda view: view.joules_per_clean_step,
    ),
)
