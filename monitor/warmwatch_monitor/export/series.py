"""The series of one rank: name, help, labels, and where the value comes from.

One table, RANK_SERIES, in the order in which /metrics lists them. Names, types and labels are
public. A reader returns ``None`` where nothing is known: then there is no series, never a 0.
Counters of a rank that has ended keep their last value until it leaves; ``warmwatch_warm`` and
``warmwatch_compiling`` are then 0 and ``warmwatch_state`` says how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warmwatch.record import CACHES, CATEGORIES, KINDS, PHASES, CompileCounts, Slot, Warmup
from warmwatch.verdict import CONDITIONS, State
from warmwatch_monitor.export import figures
from warmwatch_monitor.model import ProcessReading, RankView

STATES = tuple(state.value for state in State)
_RECORDS = "compilations"  # the seam that also reads Dynamo's counters
_AT_RUN_TIME = ("autotune", "cudagraph", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank with the figures that several series share."""

    view: RankView
    phase_ns: tuple[int, ...]
    warmup: Warmup | None
    gpu_seconds: float | None

    @property
    def slot(self) -> Slot:
        return self.view.reading.slot

    @property
    def compile(self) -> CompileCounts:
        return self.view.reading.slot.compile

    @property
    def process(self) -> ProcessReading | None:
        return self.view.process


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One value for each rank, or with ``label`` one for each of ``values``, in their order.

    ``seam`` is where the agent has the numbers from; a torch without it gives no such series.
    """

    name: str
    type: str
    help: str
    read: Callable[[Rank], Sequence[float | None] | None]
    label: str | None = None
    values: tuple[str, ...] = ("",)
    seam: str | None = None


def rank(view: RankView, now_ns: int) -> Rank:
    """``view`` with its shared figures, as of ``now_ns``."""
    return Rank(
        view=view,
        phase_ns=figures.phase_ns(view, now_ns),
        warmup=figures.ended_warmup(view.reading.slot),
        gpu_seconds=figures.gpu_seconds(view, now_ns),
    )


def _gauge(name: str, help: str, read: Callable[[Rank], float | None]) -> Series:
    return Series(name=name, type="gauge", help=help, read=_single(read))


def _counter(
    name: str, help: str, read: Callable[[Rank], float | None], seam: str | None = None
) -> Series:
    return Series(name=name, type="counter", help=help, read=_single(read), seam=seam)


def _single(read: Callable[[Rank], float | None]) -> Callable[[Rank], Sequence[float] | None]:
    def sequence(rank: Rank) -> Sequence[float] | None:
        value = read(rank)
        return None if value is None else (value,)

    return sequence


def _one_hot(chosen: str | None, names: tuple[str, ...]) -> list[float]:
    return [float(name == chosen) for name in names]


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


def _warmup_end(rank: Rank) -> float | None:
    ended = rank.warmup
    return None if ended is None else rank.slot.header.epoch_seconds(ended.ended_ns)


def _warmup_seconds(rank: Rank) -> float | None:
    ended = rank.warmup
    return None if ended is None else (ended.ended_ns - ended.began_ns) / 1e9


def _last_step(rank: Rank) -> float | None:
    last_ns = rank.slot.steps.last_step_ns
    return rank.slot.header.epoch_seconds(last_ns) if last_ns else None


def _worth(rank: Rank, per_step: int | None) -> float | None:
    return None if per_step is None else per_step * rank.slot.steps.steps


RANK_SERIES = (
    _gauge(
        "warmwatch_warm",
        "Whether nothing is left to wait for: the rank is warm or runs eagerly.",
        lambda rank: rank.view.judgement.warm,
    ),
    _gauge(
        "warmwatch_compiling",
        "Whether compile activity is in progress now.",
        lambda rank: rank.view.judgement.compiling,
    ),
    Series(
        name="warmwatch_state",
        type="gauge",
        help="1 for the state that the rank is in, 0 for the others.",
        label="state",
        values=STATES,
        read=lambda rank: _one_hot(rank.view.judgement.state.value, STATES),
    ),
    Series(
        name="warmwatch_condition",
        type="gauge",
        help="1 for what holds beside the state: thrashing, fallback, unknown; else 0.",
        label="condition",
        values=CONDITIONS,
        read=lambda rank: [float(c in rank.view.judgement.conditions) for c in CONDITIONS],
    ),
    Series(
        name="warmwatch_compile_phase",
        type="gauge",
        help="1 for the phase of the compile activity in progress, 0 for the others.",
        label="phase",
        values=PHASES,
        read=lambda rank: _one_hot(rank.view.judgement.phase, PHASES),
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
    _counter(
        "warmwatch_graphs_total",
        "Graphs captured by Dynamo.",
        lambda rank: rank.compile.graphs,
        _RECORDS,
    ),
    _counter(
        "warmwatch_graph_breaks_total",
        "Graph breaks counted by Dynamo.",
        lambda rank: rank.compile.graph_breaks,
        _RECORDS,
    ),
    _counter(
        "warmwatch_compile_failures_total",
        "Compilations that failed.",
        lambda rank: rank.compile.failures,
        _RECORDS,
    ),
    _counter(
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
    _counter(
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
    _counter(
        "warmwatch_compile_gpu_seconds_total",
        "Time for which the rank's GPUs were held while it compiled: compile time times GPUs.",
        lambda rank: rank.gpu_seconds,
    ),
    _counter(
        "warmwatch_compile_energy_joules_total",
        "Energy of the rank's GPUs while it compiled, since this monitor first saw it.",
        lambda rank: figures.compile_joules(rank.view),
    ),
    _gauge(
        "warmwatch_clean_step_energy_joules",
        "Energy of the rank's GPUs for a clean step, the mean since this monitor first saw it.",
        lambda rank: figures.joules_per_clean_step(rank.view),
    ),
    _gauge(
        "warmwatch_warmup_seconds",
        "Length of the latest warm-up; absent until it ended and while it is open again.",
        _warmup_seconds,
    ),
    _gauge(
        "warmwatch_warmup_steps",
        "Steps that the latest warm-up took; absent until it ended and while it is open again.",
        lambda rank: None if rank.warmup is None else rank.warmup.steps,
    ),
    _gauge(
        "warmwatch_warmup_end_timestamp_seconds",
        "When the latest warm-up ended; absent until then and while it is open again.",
        _warmup_end,
    ),
    _gauge(
        "warmwatch_world_size",
        "Ranks of the whole run as its launcher says, those on other hosts included.",
        lambda rank: rank.slot.identity.world_size,
    ),
    _counter("warmwatch_steps_total", "Training steps.", lambda rank: rank.slot.steps.steps),
    _gauge("warmwatch_last_step_timestamp_seconds", "When the last step ended.", _last_step),
    _counter(
        "warmwatch_tokens_total",
        "Tokens trained on: steps times what the user said a step is worth.",
        lambda rank: _worth(rank, rank.slot.identity.tokens_per_step),
    ),
    _counter(
        "warmwatch_samples_total",
        "Samples trained on: steps times what the user said a step is worth.",
        lambda rank: _worth(rank, rank.slot.identity.samples_per_step),
    ),
    _counter(
        "warmwatch_process_cpu_seconds_total",
        "CPU time of the training process.",
        lambda rank: None if rank.process is None else rank.process.cpu_seconds,
    ),
    _gauge(
        "warmwatch_process_resident_memory_bytes",
        "Resident memory of the training process.",
        lambda rank: None if rank.process is None else rank.process.resident_bytes,
    ),
    _gauge(
        "warmwatch_process_threads",
        "Threads of the training process.",
        lambda rank: None if rank.process is None else rank.process.threads,
    ),
    _counter(
        "warmwatch_agent_errors_total",
        "Errors of the agent's own that it swallowed.",
        lambda rank: rank.compile.agent_errors,
    ),
    _counter(
        "warmwatch_journal_dropped_lines_total",
        "Journal lines that the agent could not write.",
        lambda rank: rank.compile.journal_dropped,
    ),
)
