"""Figures of a rank's compiler."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, defstruct, field

from warmwatch.shared.fallbacks import CAUSES
from warmwatch.shared.values import CACHES, DISABLED, KINDS, PHASES, PLAIN, PROGRESS, REASONS
from warmwatch_monitor.figures.declared import Count, Epoch, Joules, Seconds, figure

_KINDS = ("compilations", "compilation_kinds")  # hook points
_RECOMPILES = (*_KINDS, "compilation_ids")
_LIMIT = ("recompile_limit",)
_STANCE = ("disabled",)


def _counted(metric: str, counter: str, *needs: str) -> Meta:
    """A counter of the compile block that rests on PyTorch's records of compilations."""
    return figure(metric, counter=counter, needs=("compilations", *needs))


# figures that several types share
Phase = Annotated[
    str | None,
    figure(
        "compile_phase",
        label="phase",
        values=PHASES,
        text="Phase of the compile activity in progress; absent if there is none.",
    ),
]
CompileLimit = Annotated[
    Seconds | None,
    figure(
        "compile_limit_seconds",
        text="How long one compile activity of the rank may take before the condition "
        "`long_compile` holds; absent: no limit.",
    ),
]
GpuSeconds = Annotated[
    Seconds | None,
    figure(
        "compile_gpu_seconds_total",
        text="Time for which the rank's GPUs were held while it compiled: compile time times GPUs; "
        "absent if it reports none.",
    ),
]

Caller = Annotated[
    str | None,
    Meta(
        description="For library code, the user's line that called it, such as `train.py:31`; "
        "empty if only library code is involved. Null for the user's own functions."
    ),
]


class Located(Struct, frozen=True, kw_only=True):
    """What a function of the program caused; all fields are null if no function is known."""

    name: str | None = None
    """Name of the function; null if it is unknown."""
    file: str | None = None
    """Base name of its file."""
    line: Count | None = None
    """Its first line."""

    @property
    def function(self) -> tuple[str | None, str | None, int | None]:
        return self.name, self.file, self.line


class CompileTarget(Located, frozen=True, kw_only=True):
    """A function that is compiled, and why."""

    kind: str | None = None
    """Such as `forward`; null as long as it is unknown."""
    reason: str | None = None
    """Why it is recompiled, in PyTorch's words; null for a first compilation."""
    category: str | None = None
    """Category of the reason, such as `shape`."""
    caller: Caller = None
    dynamic: bool | None = None
    """Whether all sizes are dynamic, or none; null: those that have changed."""
    of_class: str | None = field(default=None, name="class")
    """Class of the module or optimizer that it runs for."""
    last_batch: tuple[Count, Count] | None = None
    """The size of the last batch of an epoch and the usual one; null unless that is what changed.
    """
    actual: str | None = None
    """The number, or the length, that is no longer what the reason's guard expects."""
    parameter: str | None = None
    """An argument that is a parameter, or holds one, whose size changed with that of the reason."""
    anew: bool = False
    """Whether it is for a new instance of a class, and an earlier one is gone."""
    again: bool = False
    """Whether it had been compiled before, and PyTorch dropped the result: it is no recompile."""
    exported: bool = False
    """Whether PyTorch dropped it for a strict `torch.export`."""


class FunctionTotals(Located, frozen=True, kw_only=True):
    """Totals over all compilations of one function, backwards included."""

    compilations: int = 0
    """Compilations, forward and backward."""
    failures: int = 0
    """Compilations that failed."""
    seconds: Seconds = 0.0
    """Compile time of all its compilations."""
    cache_hits: int = 0
    """Compilations that a cache had."""
    cache_misses: int = 0
    """Compilations that no cache had."""


class Workers(Struct, frozen=True, kw_only=True):
    """Compile workers."""

    busy: int
    """Compile workers whose CPU time grows."""
    idle: int
    """The other compile workers."""

    @property
    def count(self) -> int:
        return self.busy + self.idle


CompileWorkers = Annotated[
    Workers | None,
    figure(
        "compile_workers",
        label="state",
        values=("busy", "idle"),
        text="Compile worker processes of the rank: busy where their CPU time grows, else idle.",
    ),
]


class Counted(Struct, frozen=True, kw_only=True):
    """Progress of the compile activity."""

    of: str
    """What is counted: `kernels`, or `choices` of an autotuning."""
    done: Annotated[int, figure("compile_progress_done", label="of", values=PROGRESS)]
    """Items, such as kernels, that the compile activity in progress has finished."""
    total: Annotated[int, figure("compile_progress_planned", label="of", values=PROGRESS)]
    """Items of the compile activity in progress in total."""


class Estimate(Struct, frozen=True, kw_only=True):
    """Estimated time left of a compilation, from what the same took before.

    `docs/reference/estimates.md` has the method.
    """

    of: str
    """`warmup`: the whole first warm-up. Recompiles have no estimate."""
    so_far_seconds: Seconds
    """Time that it has taken so far."""
    last_seconds: Seconds
    """Time that it took last time."""
    left_seconds: Annotated[Seconds | None, figure("compile_left_seconds")] = None
    """Estimated time left of what compiles now, from earlier compilations of the same; absent once
    it takes longer than all of them, and then only the time of the last one is known.
    """
    low: Seconds | None = None
    """Shortest time left by earlier times; null without a time left."""
    high: Seconds | None = None
    """Longest time left by earlier times; null without a time left."""
    phases: Mapping[str, Seconds] = {}
    """Estimated time left by phase, divided as last time."""
    precedents: int = 1
    """Number of earlier runs, or ranks, that the estimate rests on."""
    of_rank: bool = False
    """Whether it rests on other ranks of this run, not on earlier runs."""


class CompilingWorkers(Struct, frozen=True, kw_only=True):
    """What the workers of a training's `DataLoader`s compile, which is no activity of the rank."""

    compiling: int
    """Workers that compile now."""
    since: Epoch | None = None
    """Since when, of the first of them; null if none does."""
    for_seconds: Seconds | None = None
    """For how long, of the first of them; null if none does."""
    processes: int
    """Workers that have compiled so far. Without `persistent_workers`, each epoch has new ones."""
    at_once: int
    """The most of them that lived at one time."""
    seconds: Seconds
    """What they have compiled so far, added up over workers."""
    name: str | None = None
    """The function that compiled last; null if unknown."""


class OpenActivity(Struct, frozen=True, kw_only=True):
    """Compile activity in progress; of a rank that has ended, the one that its end cut off."""

    began_at: Annotated[Epoch, figure("compile_start_timestamp_seconds")]
    """When the compile activity in progress began; absent if there is none."""
    seconds: float
    """Since then."""
    phase: str | None = None
    """One of PHASES; ``None`` if not reported."""
    counted: Counted | None = None
    """Its progress, if PyTorch counts the items of the current phase."""


class CacheUse(Struct, frozen=True, kw_only=True):
    """Lookups in a compile cache."""

    hits: Annotated[int, figure("compile_cache_hits_total")]
    """Lookups in the compile cache that found an entry."""
    misses: Annotated[int, figure("compile_cache_misses_total")]
    """Lookups in the compile cache that found none."""


class GraphCounts(Struct, frozen=True, kw_only=True):
    """What tells how a program is divided into graphs; a count is absent without its hook point."""

    graphs: Annotated[int | None, _counted("graphs_total", "graphs", "graph_counter")] = None
    """Graphs captured by Dynamo."""
    graph_breaks: Annotated[
        int | None, _counted("graph_breaks_total", "graph_breaks", "graph_break_counter")
    ] = None
    """Graph breaks, also those that Dynamo's own counter lacks: branches on a tensor, and those
    after which it leaves a function, or the rest of it, to Python (in a loop, a `with` or a `try`
    block; at an LSTM).
    """
    recompiles: int | None = None
    """Compilations of code that had been compiled before."""


if TYPE_CHECKING:
    _PlainCounts = GraphCounts
else:  # with the counters of PLAIN
    _PlainCounts = defstruct(
        "_PlainCounts",
        [
            (
                name,
                Annotated[int | None, figure(metric, counter=name, needs=needs, text=text)],
                None,
            )
            for name, (needs, metric, text) in PLAIN.items()
        ],
        bases=(GraphCounts,),
        frozen=True,
        kw_only=True,
    )


class CompileTotals(_PlainCounts, frozen=True, kw_only=True):
    """What was compiled, in numbers, of which a report has the same."""

    compilations: int | None = None
    """Graphs compiled, forward and backward."""
    graphs_before: Annotated[int | None, _counted("", "graphs_before")] = None
    """Graphs captured before the agent attached."""
    recompiles_after_warm: Annotated[
        int | None,
        figure("recompiles_after_warm_total", counter="recompiles_after_warm", needs=_RECOMPILES),
    ] = None
    """Recompiles after the rank had been warm, and functions that `torch._dynamo.reset()` made
    compile again then.
    """
    failures: Annotated[
        int | None, _counted("compile_failures_total", "failures", "compilation_failures")
    ] = None
    """Compilations that failed."""
    fallbacks: int | None = None
    """Functions of which some calls run eagerly: new inputs at the recompile limit or while
    `torch._dynamo.config.disable` is set, calls in a `TorchDispatchMode`, failed compilations that
    `suppress_errors` hides, and uncompiled `flex_attention`.
    """
    cudagraph_skips: Annotated[int | None, _counted("cudagraph_skips_total", "cudagraph_skips")] = (
        None
    )
    """How often PyTorch skipped requested CUDA graphs."""


class PublishedCompile(CompileTotals, frozen=True, kw_only=True):
    """What the compiler of a rank did so far, as ``/status`` has it, too."""

    seconds: Seconds = 0.0
    """Compile time, the activity in progress included."""
    phase_seconds: Annotated[
        Mapping[str, Seconds],
        figure("compile_seconds_total", label="phase", values=PHASES, counter="phase_ns"),
    ] = field(default_factory=dict)
    """Compile time by phase, the activity in progress included. The phases add up to all of it;
    `/status` leaves out those that took none.
    """
    precompiled: tuple[str, ...] | None = None
    """Which code compiled ahead of time runs: `aoti`, `precompile`, `jit`, `tensorrt`, `cudagraph`.
    Such a rank is never `eager`.
    """
    caches: Annotated[
        Mapping[str, CacheUse] | None,
        figure(label="cache", values=CACHES, needs=("compilations", "cache_counters")),
    ] = None
    """Hits and misses of each cache."""
    wrappers: Annotated[
        int | None, figure("compile_wrappers_total", counter="wrappers", needs=("wrappers",))
    ] = None
    """Functions and modules that the program passed to `torch.compile`."""
    disabled: Annotated[str | None, figure("compile_disabled", label="by", values=DISABLED[1:])] = (
        None
    )
    """What turned compilation off: `environment` (TORCHDYNAMO_DISABLE), `stance` (`force_eager`) or
    `config`; for new inputs only, `eager_on_recompile` or `fail_on_recompile`. Absent if it is on.
    """
    disabled_since_step: int | None = None
    """Last step before compilation was turned off; null if it is on."""
    eager_calls: Annotated[int | None, figure(counter="eager_calls", needs=_STANCE)] = None
    """Calls of compiled functions that the stance `force_eager` ran eagerly."""
    refused_calls: Annotated[int | None, figure(counter="refused_calls", needs=_STANCE)] = None
    """Calls that the stance `fail_on_recompile` refused."""
    on_recompile_calls: Annotated[
        int | None, figure(counter="on_recompile_calls", needs=_STANCE)
    ] = None
    """Calls under the stance `eager_on_recompile`: those with new inputs ran eagerly."""
    uncompiled_evaluations: int | None = None
    """Evaluations in which no compiled function was called; null if none has ended."""
    background_since: Epoch | None = None
    """When the oldest background compilation in progress began; null if there is none. Steps do not
    wait for it.
    """
    background_seconds: Annotated[
        Seconds | None, figure("compile_background_seconds_total", counter="background_ns")
    ] = None
    """Time in which other threads compiled while steps were completed, added up over threads."""


class Compile(PublishedCompile, frozen=True, kw_only=True):
    """Activity of the rank's compiler so far. A count is ``None`` if this torch has none."""

    begun: bool = False
    """Whether any activity has begun, ended or not."""
    open: OpenActivity | None = None
    """The one in progress."""
    last_end_at: Annotated[Epoch | None, figure("compile_end_timestamp_seconds")] = None
    """When the last compile activity ended; absent if none has."""
    compilations_by_kind: Annotated[
        Mapping[str, int] | None,
        figure("compilations_total", label="kind", values=KINDS, needs=_KINDS),
    ] = None
    """Compilations by kind."""
    recompiles_by_category: Annotated[
        Mapping[str, int] | None,
        figure("recompiles_total", label="category", values=REASONS, needs=_RECOMPILES),
    ] = None
    """Recompiles by the category of their reason."""
    fallbacks_by_cause: Annotated[
        Mapping[str, int] | None,
        figure("compile_fallbacks_total", label="cause", values=CAUSES, needs=_LIMIT),
    ] = None
    """Functions of which some calls run eagerly, by cause: new inputs at the recompile limit or
    while `torch._dynamo.config.disable` is set, calls in a `TorchDispatchMode`, failed compilations
    that `suppress_errors` hides, uncompiled `flex_attention`.
    """
    eager_calls_since: int | None = None
    """The step of the first such call."""
    refused_calls_since: int | None = None
    """The step of the first such call."""
    on_recompile_calls_since: int | None = None
    """The step of the first such call."""
    background_for_seconds: float | None = None
    """Since ``background_since``."""


# The kinds that count as a compilation: one record of PyTorch's for one graph. Autotuning of a
# kernel and recording of a CUDA graph are records too, but do not count.
OF_GRAPHS = ("forward", "backward", "other")


def with_totals(
    compilations_by_kind: Mapping[str, int] | None,
    recompiles_by_category: Mapping[str, int] | None,
    fallbacks_by_cause: Mapping[str, int] | None,
) -> dict[str, Any]:
    """These figures, and their totals, by field of ``Compile``."""
    kinds, categories, causes = compilations_by_kind, recompiles_by_category, fallbacks_by_cause
    return {
        "compilations_by_kind": kinds,
        "compilations": None if kinds is None else sum(kinds.get(name, 0) for name in OF_GRAPHS),
        "recompiles_by_category": categories,
        "recompiles": None if categories is None else sum(categories.values()),
        "fallbacks_by_cause": causes,
        "fallbacks": None if causes is None else sum(causes.values()),
    }


class Energy(Struct, frozen=True, kw_only=True):
    """Energy of the rank's GPUs since this monitor first saw the rank."""

    compile_joules: Annotated[Joules | None, figure("compile_energy_joules_total")] = None
    """Energy of the rank's GPUs while it compiled, since this monitor first saw it; absent if not
    measured.
    """
    covered_seconds: Seconds
    """Compile time that `compile_joules` covers: less than all if the monitor started late."""
    joules_per_clean_step: Annotated[Joules | None, figure("clean_step_energy_joules")] = None
    """Energy of the rank's GPUs for a clean step, the mean since this monitor first saw it; absent
    if not measured.
    """


def recompiles(compile: Mapping[str, Any]) -> int | None:
    """The recompiles of an answer's ``compile``, with the one in progress; ``None`` if unknown."""
    count: int | None = compile.get("recompiles")
    return None if count is None else count + recompiles_now(compile)


def recompiles_now(compile: Mapping[str, Any]) -> bool:
    """Whether the activity in progress of a rank's ``compile`` is a recompile."""
    underway = compile.get("underway")
    return bool(underway and underway["reason"] and not underway["backward"])


def is_without_grad(id: str | None, reason: str | None, trained: Collection[str]) -> bool:
    """Whether the compilation ``id`` was for a call without gradients, for which a cache entry with
    a backward did not match.

    ``trained``: compile ids with a recorded backward. A missing one proves nothing: with dynamic
    shapes PyTorch compiles the backward together with the forward.
    """
    if id in trained:
        return False
    entries = (line.strip().lstrip("!").partition(":") for line in (reason or "").splitlines())
    return any(entry in trained and "grad_mode" in why for entry, _, why in entries)
