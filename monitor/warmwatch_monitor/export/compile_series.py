"""The series of what a rank's compiler did and does, in the order in which /metrics lists them.

Names, types and labels are public.
"""

from __future__ import annotations

from collections.abc import Sequence

from warmwatch.record import CACHES, CATEGORIES, KINDS, PHASES
from warmwatch_monitor.export import figures
from warmwatch_monitor.export.series import Rank, Series, counter, gauge, one_hot

_RECORDS = "compilations"  # the seam that also reads Dynamo's counters
_AT_RUN_TIME = ("autotune", "cudagraph", "other")


def _compilations(rank: Rank) -> Sequence[float | None]:
    counts = rank.compile.compilations
    if figures.tells(rank.slot, "runtime_compilations"):
        return counts
    pairs = zip(KINDS, counts, strict=True)
    return [None if kind in _AT_RUN_TIME else count for kind, count in pairs]


def _workers(rank: Rank) -> Sequence[float] | None:
    process = rank.process
    if process is None or process.workers_busy is None or process.workers_idle is None:
        return None
    return process.workers_busy, process.workers_idle


def _start(rank: Rank) -> float | None:
    began_ns = rank.compile.active_since_ns if rank.view.judgement.compiling else 0
    return rank.slot.header.epoch_seconds(began_ns) if began_ns else None


def _end(rank: Rank) -> float | None:
    ended_ns = rank.compile.last_end_ns
    return rank.slot.header.epoch_seconds(ended_ns) if ended_ns else None


COMPILE_SERIES: tuple[Series, ...] = (
    Series(
        name="warmwatch_compile_phase",
        type="gauge",
        help="1 for the phase of the compile activity in progress, 0 for the others.",
        label="phase",
        values=PHASES,
        read=lambda rank: one_hot(rank.view.judgement.phase, PHASES),
    ),
    gauge(
        "warmwatch_compile_start_timestamp_seconds",
        "When the compile activity in progress began; absent where none is.",
        _start,
    ),
    gauge(
        "warmwatch_compile_end_timestamp_seconds",
        "When the last compile activity ended; absent where none has.",
        _end,
    ),
    Series(
        name="warmwatch_compile_seconds_total",
        type="counter",
        help="Time spent on compile activity by phase, the activity in progress included.",
        label="phase",
        values=PHASES,
        read=lambda rank: [ns / 1e9 for ns in rank.phase_ns],
    ),
    Series(
        name="warmwatch_compilations_total",
        type="counter",
        help="Compilations by kind.",
        label="kind",
        values=KINDS,
        read=_compilations,
        seam=_RECORDS,
    ),
    counter(
        "warmwatch_graphs_total",
        "Graphs captured by Dynamo.",
        lambda rank: rank.compile.graphs,
        _RECORDS,
    ),
    counter(
        "warmwatch_graph_breaks_total",
        "Graph breaks counted by Dynamo.",
        lambda rank: rank.compile.graph_breaks,
        _RECORDS,
    ),
    counter(
        "warmwatch_compile_failures_total",
        "Compilations that failed.",
        lambda rank: rank.compile.failures,
        _RECORDS,
    ),
    counter(
        "warmwatch_compile_fallbacks_total",
        "Frames that hit the recompile limit and run eagerly from then on.",
        lambda rank: rank.compile.fallbacks,
        "recompile_limit",
    ),
    Series(
        name="warmwatch_recompiles_total",
        type="counter",
        help="Recompiles by the category of their reason.",
        label="category",
        values=CATEGORIES,
        read=lambda rank: rank.compile.recompiles,
        seam=_RECORDS,
    ),
    counter(
        "warmwatch_recompiles_after_warm_total",
        "Recompiles of a rank that had been warm before.",
        lambda rank: rank.compile.recompiles_after_warm,
        _RECORDS,
    ),
    Series(
        name="warmwatch_compile_cache_hits_total",
        type="counter",
        help="Compile cache hits by cache.",
        label="cache",
        values=CACHES,
        read=lambda rank: rank.compile.cache_hits,
        seam=_RECORDS,
    ),
    Series(
        name="warmwatch_compile_cache_misses_total",
        type="counter",
        help="Compile cache misses by cache.",
        label="cache",
        values=CACHES,
        read=lambda rank: rank.compile.cache_misses,
        seam=_RECORDS,
    ),
    Series(
        name="warmwatch_compile_workers",
        type="gauge",
        help="Compile worker processes of the rank: busy where their CPU time grows, else idle.",
        label="state",
        values=("busy", "idle"),
        read=_workers,
    ),
    counter(
        "warmwatch_compile_gpu_seconds_total",
        "Time for which the rank's GPUs were held while it compiled: compile time times GPUs.",
        lambda rank: rank.gpu_seconds,
    ),
    counter(
        "warmwatch_compile_energy_joules_total",
        "Energy of the rank's GPUs while it compiled, since this monitor first saw it.",
        lambda rank: figures.compile_joules(rank.view),
    ),
    gauge(
        "warmwatch_clean_step_energy_joules",
        "Energy of the rank's GPUs for a clean step, the mean since this monitor first saw it.",
        lambda rank: figures.joules_per_clean_step(rank.view),
    ),
)
