"""The parts of a report. Seconds, counts and names; ``None`` is "not known". Pure.

``warmwatch report --json`` is this, key by key, so names are added and never change.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from warmwatch_monitor.figures.compile import CompileTotals, FunctionTotals, GraphCounts, Located
from warmwatch_monitor.figures.rank import LimitedBy, Place, RankState, SlowerPeriod
from warmwatch_monitor.figures.training import Baseline, StepCount, TypicalStep
from warmwatch_monitor.model.run_summary import Compiled, Provenance
from warmwatch_monitor.status.schema.rank import Break, End, Worth

SCHEMA_VERSION = 1


class Priced(Compiled, frozen=True, kw_only=True):
    """A compilation with its backward and the autotuning at its first run, added up; what has no
    sum is that of the first part that has it.
    """

    began: float
    """When the first part began, seconds since the epoch; `ended`: when the last part did."""
    kinds: tuple[str, ...] = ()
    """Kind of each part, in order, such as `forward` and `backward`."""
    plain: str | None = None
    """The reason in plain words, if available."""
    compilations: int = 1
    """Number of graphs compiled in it, forward and backward."""
    cache_hits: int = 0
    """How many of these were found in a compile cache."""
    cache_misses: int = 0
    """How many of these were not found."""


class Recompiled(Located, frozen=True, kw_only=True):
    """Recompiles of one function for one kind of reason, which have the same remedy."""

    category: str
    """Kind of the reason, such as `shape`."""
    count: int
    """Number of recompiles, without those refused at the recompile limit."""
    seconds: float
    """Compile time of all of them, backwards included."""
    callers: tuple[str, ...] = ()
    """Lines of the user's that called library code; an empty one if none did."""
    steps: tuple[int, ...] = ()
    """Number of steps completed before each: it was in the step after."""
    between_steps: bool = False
    """Whether they were in no step: before step 1, or in calls without gradients, such as an
    evaluation."""
    reasons: tuple[str, ...] = ()
    """Each reason once, in plain words if available, else in PyTorch's."""
    advice: str | None = None
    """Remedy, or what follows from a recompile of the first warm-up; null if there is none."""
    often: str | None = None
    """What kept changing, in words; null if unknown."""
    after_warm: int = 0
    """How many of them came after the first warm-up."""
    in_a_row: int = 0
    """For how many steps in a row the function recompiled."""
    last_batch: bool = False
    """Whether the last batch of an epoch was smaller: that comes back in each run."""
    at_limit: int = 0
    """How many more the recompile limit refused: nothing was compiled."""
    unfinished: bool = False
    """Whether it goes on, or its process ended in it."""


class Function(FunctionTotals, frozen=True, kw_only=True):
    """Compile cost of one function."""

    phase_seconds: Mapping[str, float]
    """Exclusive seconds by phase."""
    times: tuple[Priced, ...]
    """Each compilation with its backward."""


class Share(Struct, frozen=True, kw_only=True):
    """A part of the run's time."""

    name: str
    """The part, such as `warm-up`."""
    seconds: float
    """Its time."""
    ratio: float
    """Its share of the whole time."""


class Goodput(Struct, frozen=True, kw_only=True):
    """Where the time of a rank went."""

    seconds: float
    """The whole time; the shares add up to it."""
    shares: tuple[Share, ...]
    """The parts."""
    untold: tuple[str, ...] = ()
    """Parts that nothing reported; their time is in `unaccounted` or in `clean steps`."""
    evaluation_compile_seconds: float = 0.0
    """Compile time within evaluations: part of `warm-up` and `compiling after the warm-up`, not of
    `evaluation`."""
    warmup_pause_seconds: float = 0.0
    """Saves and evaluations within the first warm-up: part of `saving` and `evaluation`, not of
    `warm-up`."""


class Cost(Struct, frozen=True, kw_only=True):
    """Cost of one part of the compiler's work."""

    what: str
    """`warm-up`, `compiling after the warm-up`, or `compiling`, which is both."""
    seconds: float
    """Of the rank that compiled longest."""
    steps: int | None = None
    """Steps within it."""
    gpu_seconds: float | None = None
    """Of all ranks together."""
    joules: float | None = None
    """Of all ranks together."""
    estimated: bool = False
    """Whether the energy of all compiling was measured and split by time."""
    covered: float | None = None
    """Share of the compile time for which energy was measured."""


class Steady(Struct, frozen=True, kw_only=True):
    """Clean steps of the whole run."""

    count: int | None = None
    """Number of clean steps."""
    seconds: float | None = None
    """The usual length of one: their mean if they are similar, else the median."""
    median: float | None = None
    """Median length."""
    p99: float | None = None
    """99th percentile."""


class Remedy(Struct, frozen=True, kw_only=True):
    """One advice."""

    about: str
    """What it is about."""
    what: str
    """What to do."""
    saves: float | None = None
    """Seconds that it saves at most; null if unknown."""


class RankLine(GraphCounts, frozen=True, kw_only=True):
    """One rank in the table of ranks."""

    rank: int
    """The rank, from 0."""
    state: RankState
    how: str | None = None
    """How it ended, as in `end` of `/status`; null if it lives."""
    steps: StepCount
    compile_seconds: float
    """Compile time."""
    warmup_seconds: float | None = None
    """Length of its first warm-up; null if it was never warm."""
    step_seconds: TypicalStep = None


class ChangedFact(Struct, frozen=True, kw_only=True):
    """A property that differs from the run before."""

    what: str
    """The property, such as `torch`."""
    now: str | int
    """Its value in this run."""
    before: str | int
    """Its value in the run before."""


class ChangedFunction(Located, frozen=True, kw_only=True):
    """Compile cost of one function in the first warm-up, in this run and in the run before."""

    seconds: float
    """In this run."""
    before_seconds: float
    """In the run before."""
    phases: Mapping[str, float]
    """Additional seconds by phase, from PyTorch's own record."""
    times: int
    """Number of compilations in this run."""
    before_times: int
    """In the run before."""
    ops: int | None = None
    """Operators in its graphs."""
    before_ops: int | None = None
    """In the run before."""
    code_changed: bool | None = None
    """Whether its code differs; null if unknown."""

    @property
    def difference(self) -> float:
        return self.seconds - self.before_seconds


class Changed(Struct, frozen=True, kw_only=True):
    """The last comparable run, and the differences since."""

    id: str
    """Id of that run."""
    run: str
    """Its name."""
    began: float
    """When it began, seconds since the epoch."""
    warmup_seconds: float
    """First warm-up of this run."""
    before_seconds: float
    """First warm-up of that run."""
    facts: tuple[ChangedFact, ...] = ()
    """Properties that are known of both runs and differ, without an Inductor cache that was not
    empty and hit nothing."""
    functions: tuple[ChangedFunction, ...] = ()
    """The functions of both warm-ups, those with the largest additional cost first."""


class RunFigures(CompileTotals, frozen=True, kw_only=True):
    """Figures of the rank of a run that compiled longest."""

    steps: int = 0
    """Completed steps."""
    first_step_seconds: float | None = None
    """Length of step 1."""
    compile_seconds: float = 0.0
    """Compile time."""
    warmup_seconds: float | None = None
    """Length of the first warm-up; null if it was never warm."""
    warmup_steps: int | None = None
    """Steps within it."""
    whole_step_seconds: float | None = None
    """Time since the first warm-up for each step since, with evaluations, saves, recompiles and
    the end."""
    joules_per_step: float | None = None
    """Mean energy of a clean step."""
    peak_memory_bytes: int | None = None
    """The most that CUDA's allocator had allocated."""
    slower: tuple[SlowerPeriod, ...] = ()
    """Periods in which steps took longer than before."""


class Failure(Struct, frozen=True, kw_only=True):
    """How the rank failed that failed first: the others may have failed of it."""

    rank: int
    """The rank; `rank` of the report may be another."""
    end: End
    """How it ended."""
    compilation: Priced | None = None
    """Its last compilation if that failed."""


class Report(RunFigures, frozen=True, kw_only=True):
    """A run that has ended, or so far. Figures of a single rank are of `rank`."""

    schema_version: int = SCHEMA_VERSION
    """1. Within a version, no key changes its meaning."""
    id: str
    """Its id in the history."""
    run: str
    """Its name."""
    owner: str | None
    """User who owns it; null if unknown."""
    host: str | None
    """Host name."""
    began: float
    """When its first rank attached, seconds since the epoch."""
    ended: float | None
    """When its last rank ended, seconds since the epoch; null if it lives, or if that is unknown.
    """
    seen: float
    """When it was last polled, seconds since the epoch."""
    state: str
    """Its state, as in `/status`."""
    living: bool
    """Whether a rank lived at the last poll."""
    summary: str
    """The run's sentence."""
    what: Provenance
    """Its provenance."""
    rank: int | None = None
    """The rank that compiled longest; null without ranks."""
    world_size: int | None = None
    """Number of ranks, as its launcher set it."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """A sentence for each condition that holds for a rank, by name."""
    evidence: tuple[str, ...] = ()
    """The facts behind the state, one clause each."""
    end: End | None = None
    """How the rank ended; null if it lives."""
    failure: Failure | None = None
    """What made a failed run fail; null for any other."""
    precompiled: tuple[str, ...] = ()
    """What ran that was compiled ahead of time, such as `aoti`."""
    goodput: Goodput | None = None
    """Where the time went; null if unknown."""
    costs: tuple[Cost, ...] = ()
    """What compiling cost, of all ranks."""
    steady: Steady = Steady()
    """Clean steps."""
    baseline: Baseline | None = None
    """The eager baseline; null without one."""
    worth: Worth | None = None
    """Throughput and MFU of the clean steps of the whole run; null if the work of a step is
    unknown.
    """
    phases: Mapping[str, float] = field(default_factory=dict)
    """Exclusive compile seconds by phase."""
    functions: tuple[Function, ...] = ()
    """Compile cost by function, the most expensive first."""
    recompiled: tuple[Recompiled, ...] = ()
    """Recompiles by function and reason."""
    breaks: tuple[Break, ...] = ()
    """Graph breaks by reason."""
    places: tuple[Place, ...] = ()
    """Where Dynamo resumed after graph breaks."""
    do: tuple[Remedy, ...] = ()
    """What to do first, the largest saving first."""
    ranks: tuple[RankLine, ...] = ()
    """All ranks, the longest compile time first."""
    differences: tuple[str, ...] = ()
    """Differences between ranks, one sentence each."""
    left_out: int = 0
    """Number of compilations beyond the limits of journal and history."""
    doubts: tuple[str, ...] = ()
    """Why the report is incomplete, one sentence each."""
    changed: Changed | None = None
    """Differences from the last comparable run; null without one."""
    limited_by: LimitedBy | None = None
    """What limited the run's speed when it was last warm; null if that is unknown."""
