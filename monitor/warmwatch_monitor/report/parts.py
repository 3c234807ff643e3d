"""The parts of a report. Seconds, counts and names; ``None`` is "not known". Pure.

``warmwatch report --json`` is this, key by key, so names are added and never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from warmwatch_monitor.model.run_summary import Provenance

SCHEMA_VERSION = 1


class Priced(Struct, frozen=True, kw_only=True):
    """One compilation with its backward and the autotuning at its first run.

    Attributes:
        began, ended: of the first and the last of them. seconds: of all of them.
        step: steps before it. kinds: their kinds, in order. name, file, line, caller, dynamic,
        evaluating, reason, category, cache, failure, ops, kernels, slowest_kernels: as in
        ``run_summary.Compiled``.
        plain: the reason in plain words. phase_seconds: exclusive.
        compilations: graphs among them, forward and backward. cache_hits, cache_misses: of all.
    """

    began: float
    ended: float
    seconds: float | None = None
    step: int | None = None
    id: str | None = None
    kinds: tuple[str, ...] = ()
    name: str | None = None
    file: str | None = None
    line: int | None = None
    caller: str | None = None
    dynamic: bool | None = None
    evaluating: bool = False
    reason: str | None = None
    plain: str | None = None
    category: str | None = None
    cache: str | None = None
    compilations: int = 1
    cache_hits: int = 0
    cache_misses: int = 0
    failure: str | None = None
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    ops: int | None = None
    kernels: int | None = None
    slowest_kernels: tuple[tuple[str, float], ...] = ()


class Recompiled(Struct, frozen=True, kw_only=True):
    """Recompiles of one function for one kind of reason.

    Attributes:
        count, seconds: of all of them, backwards included. steps: how many were before each.
        between_steps: they were not part of a step, but of calls without gradients, such as an
        evaluation.
        reasons: each once, in plain words if available, else in PyTorch's.
        advice: the remedy of the category, if there is one. often: what kept changing, in words.
        after_warm: how many of them came after the first warm-up.
        callers: of library code, the user's lines that called it; "" if there is none.
    """

    category: str
    count: int
    seconds: float
    name: str | None = None
    file: str | None = None
    line: int | None = None
    callers: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    between_steps: bool = False
    reasons: tuple[str, ...] = ()
    advice: str | None = None
    often: str | None = None
    after_warm: int = 0


class Function(Struct, frozen=True, kw_only=True):
    """Compile cost of one function; ``times`` has each compilation with its backward.

    ``compilations``, ``cache_hits``, ``cache_misses``: as ``/status`` counts them.
    """

    name: str | None
    file: str | None
    line: int | None
    seconds: float
    phase_seconds: Mapping[str, float]
    times: tuple[Priced, ...]
    compilations: int = 0
    cache_hits: int = 0
    cache_misses: int = 0


class Share(Struct, frozen=True, kw_only=True):
    """A part of the run's time. ``ratio``: of all of it."""

    name: str
    seconds: float
    ratio: float


class Goodput(Struct, frozen=True, kw_only=True):
    """Where the time of a rank went; the shares add up to ``seconds``.

    ``untold``: parts that were not reported; they are in the share that is not known.
    """

    seconds: float
    shares: tuple[Share, ...]
    untold: tuple[str, ...] = ()


class Cost(Struct, frozen=True, kw_only=True):
    """Cost of one part of the compiler's work.

    Attributes:
        what: ``warm-up``, ``recompiles`` or ``compiling``, which is both.
        seconds: of the slowest rank. gpu_seconds, joules, money: of all ranks together.
        estimated: joules were measured for all compiling and split by time.
        covered: share of the compile time that the joules speak of.
    """

    what: str
    seconds: float
    steps: int | None = None
    gpu_seconds: float | None = None
    joules: float | None = None
    estimated: bool = False
    covered: float | None = None
    money: float | None = None


class Steady(Struct, frozen=True, kw_only=True):
    """Clean steps: how many, how long one takes, and how far they spread (99 % are below p99).

    ``low``, ``high``: the 95 % confidence interval of the median.
    """

    count: int | None = None
    seconds: float | None = None
    median: float | None = None
    p99: float | None = None
    low: float | None = None
    high: float | None = None


class Remedy(Struct, frozen=True, kw_only=True):
    """Advice, and what it is ``about``. ``saves``: at most this many seconds; ``None`` if not
    known.
    """

    about: str
    what: str
    saves: float | None = None


class Break(Struct, frozen=True, kw_only=True):
    """Why graphs broke, and how often."""

    reason: str
    count: int
    advice: str | None = None


class Place(Struct, frozen=True, kw_only=True):
    """Where Dynamo resumed after a graph break."""

    name: str
    file: str | None = None
    line: int | None = None


class RankLine(Struct, frozen=True, kw_only=True):
    """One rank in the table of ranks."""

    rank: int
    state: str
    steps: int
    compile_seconds: float
    warmup_seconds: float | None = None
    recompiles: int | None = None
    graphs: int | None = None
    step_seconds: float | None = None


class ChangedFact(Struct, frozen=True, kw_only=True):
    """A property that differs from the run before."""

    what: str
    now: str | int
    before: str | int


class ChangedFunction(Struct, frozen=True, kw_only=True):
    """The cost of one function in the first warm-up, now and in the run before.

    ``phases``: seconds more, by phase, of PyTorch's own record. ``times``: how often it was
    compiled. ``ops``: operators in its graphs. ``code_changed``: ``None`` if not known.
    """

    name: str | None
    file: str | None
    line: int | None
    seconds: float
    before_seconds: float
    phases: Mapping[str, float]
    times: int
    before_times: int
    ops: int | None = None
    before_ops: int | None = None
    code_changed: bool | None = None


class Changed(Struct, frozen=True, kw_only=True):
    """The last comparable run, and the differences since.

    ``id``, ``run``, ``began``: of that run. ``warmup_seconds``, ``before_seconds``: of both first
    warm-ups. ``facts``: what is known of both and not the same. ``functions``: each of either
    warm-up, those first that cost most more.
    """

    id: str
    run: str
    began: float
    warmup_seconds: float
    before_seconds: float
    facts: tuple[ChangedFact, ...] = ()
    functions: tuple[ChangedFunction, ...] = ()


class Report(Struct, frozen=True, kw_only=True):
    """A run that has ended, or so far.

    Attributes:
        id, run, owner, host, began, ended, seen, state, summary, what: as a RunSummary has them.
        rank: the rank that figures of a single rank are from: the one that compiled longest.
        end: how that rank ended. living: whether any rank lived at the last poll.
        conditions: name and words of each that holds for a rank.
        first_step_seconds, first_step_memory_bytes: of that rank. baseline: its steps that ran
        eagerly on purpose, as ``/status`` has them.
        precompiled: what ran that was compiled ahead of time.
        compilations: how many of graphs. graphs_before: captured before the agent attached, so
        their cost is not known. goodput, phases, functions, recompiled, breaks, places:
        of that rank. costs: of all. do: what to do first, the dearest first.
        left_out: compilations beyond the limits of the history. doubts: reasons why the report is
        incomplete. changed: since the last comparable run in the history.
        slower: periods in which its steps took longer than before, as in ``/status``.
        limited_by: what limited its speed when it was last warm, as in ``/status``.
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    run: str
    owner: str | None
    host: str | None
    began: float
    ended: float | None
    seen: float
    state: str
    living: bool
    summary: str
    what: Provenance
    rank: int | None = None
    world_size: int | None = None
    steps: int = 0
    conditions: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    end: Mapping[str, Any] | None = None
    first_step_seconds: float | None = None
    compile_seconds: float = 0.0
    compilations: int | None = None
    graphs: int | None = None
    graphs_before: int | None = None
    precompiled: tuple[str, ...] = ()
    recompiles: int | None = None
    recompiles_after_warm: int | None = None
    warmup_seconds: float | None = None
    warmup_steps: int | None = None
    goodput: Goodput | None = None
    costs: tuple[Cost, ...] = ()
    price_per_gpu_hour: float | None = None
    steady: Steady = Steady()
    joules_per_step: float | None = None
    baseline: Mapping[str, Any] | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    mfu_ratio: float | None = None
    peak_memory_bytes: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    functions: tuple[Function, ...] = ()
    recompiled: tuple[Recompiled, ...] = ()
    breaks: tuple[Break, ...] = ()
    places: tuple[Place, ...] = ()
    graph_breaks: int | None = None
    fallbacks: int | None = None
    failures: int | None = None
    cudagraph_skips: int | None = None
    do: tuple[Remedy, ...] = ()
    ranks: tuple[RankLine, ...] = ()
    differences: tuple[str, ...] = ()
    left_out: int = 0
    doubts: tuple[str, ...] = ()
    changed: Changed | None = None
    slower: tuple[Mapping[str, Any], ...] = ()
    limited_by: Mapping[str, Any] | None = None
