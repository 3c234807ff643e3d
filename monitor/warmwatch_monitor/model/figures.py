"""The figures of one rank, in public units: all that exports and views read of it.

They come from a record (``recorded``) or from a Prometheus (``fleet``), and nothing in them says
which. Durations are seconds, times are seconds since the epoch, counts are ``int``, names ``str``;
``None`` is "not known", and never 0. What depends on the clock is as of the Snapshot's moment.

A new fact is a field here, filled in by both builders, or ``None`` where one of them has no source
for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from warmwatch import record
from warmwatch_monitor.model.baseline import Baseline
from warmwatch_monitor.model.records import (
    Compilation,
    CudagraphSkip,
    Fallback,
    FunctionCost,
    GraphBreak,
    LongStep,
    VaryingDim,
)
from warmwatch_monitor.model.worth import Worth

# 1, 2.5 and 5 in each decade from a millisecond to 1000 s: the buckets of the step histograms.
BUCKET_SECONDS = (*(m * 10**d / 1e9 for d in range(5, 11) for m in (10, 25, 50)), 1000.0)
# of a process group; any other one is "other"
BACKENDS = ("nccl", "gloo", "mpi", "ucc", "xccl", "hccl", "other")
_OF_GRAPHS = ("forward", "backward", "other")


class Who(Struct, frozen=True, kw_only=True):
    """Whom the figures are about.

    Attributes:
        run, rank: its names. name: the run's as its user gave it, without the owner that ``run``
        may have behind it. owner, owner_uid: the user whose it is.
        world_size: ranks of the whole run, as its launcher says.
        attached_at: when the agent attached. attempt: restarts by the launcher, from 0.
        host, launcher, python, torch: as the agent found them.
        gpus: uuids of its devices as CUDA spells them; empty until CUDA is up.
        collective_timeout_seconds: after which its collectives give up, the shortest of its process
        groups; collective_backend: of that one, such as ``nccl``.
    """

    run: str
    rank: int
    name: str | None = None
    owner: str | None = None
    owner_uid: int | None = None
    world_size: int | None = None
    attached_at: float | None = None
    attempt: int | None = None
    host: str | None = None
    launcher: str | None = None
    python: str | None = None
    torch: str | None = None
    gpus: tuple[str, ...] = ()
    collective_timeout_seconds: float | None = None
    collective_backend: str | None = None


class Lengths(Struct, frozen=True, kw_only=True):
    """How long the steps of one kind took.

    Attributes:
        count, sum_seconds: how many, and together. upto: how many took at most each of
        BUCKET_SECONDS. Where no histogram is known ``upto`` is ``None``.
        median, p99, longest: seconds, to the accuracy of a bin; ``None`` where no step is known.
        median_low, median_high: between them the median lies, with 95 % certainty, were
        the lengths even in their bin, which is 5 % wide.
    """

    count: int | None = None
    sum_seconds: float | None = None
    upto: tuple[int, ...] | None = None
    median: float | None = None
    p99: float | None = None
    longest: float | None = None
    median_low: float | None = None
    median_high: float | None = None

    @property
    def typical(self) -> float | None:
        """How long one of them takes, exact where they are alike."""
        return record.typical(self.count, self.sum_seconds, self.median)


class Steps(Struct, frozen=True, kw_only=True):
    """The rank's steps.

    Attributes:
        count: all of them. first_at, last_at: when they ended.
        first_seconds, last_seconds: their length, ``None`` where nothing marked their beginning.
        clean: those without compile activity. touched: those with it.
        touched_lately: how many of the last 10 were touched.
        tokens, samples: of all steps; ``None`` where the user did not say what a step is worth.
        batches: that DataLoaders handed out. batch_wait_seconds: the time spent waiting for them.
        last_batch_at: when the last one was handed out.
    """

    count: int = 0
    first_at: float | None = None
    last_at: float | None = None
    first_seconds: float | None = None
    last_seconds: float | None = None
    clean: Lengths = Lengths()
    touched: Lengths = Lengths()
    touched_lately: int | None = None
    tokens: int | None = None
    samples: int | None = None
    batches: int | None = None
    batch_wait_seconds: float | None = None
    last_batch_at: float | None = None


class Counted(Struct, frozen=True, kw_only=True):
    """How far something is: ``done`` of ``total``, of what of PROGRESS."""

    of: str
    done: int
    total: int


class OpenActivity(Struct, frozen=True, kw_only=True):
    """Compile activity in progress; of a rank that has ended, the one that its end cut off.

    Attributes:
        began_at: its begin. seconds: since then. phase: one of PHASES, ``None`` where none is told.
        counted: how far it is, where PyTorch counts what it does at the moment.
    """

    began_at: float
    seconds: float
    phase: str | None = None
    counted: Counted | None = None


class Memory(Struct, frozen=True, kw_only=True):
    """What CUDA's caching allocator held, over the process's devices, when it was last looked at.

    Attributes:
        at: when. bytes: by MEMORY; peaks are those since the program's own last reset.
    """

    bytes: Mapping[str, int]
    at: float | None = None


class Compile(Struct, frozen=True, kw_only=True):
    """What the rank's compiler did and does. A count is ``None`` where its torch keeps none.

    Attributes:
        begun: whether any activity has begun, ended or not. open: the one in progress.
        last_end_at: when the last one ended.
        phase_seconds: exclusive time of each of PHASES, the activity in progress included;
        seconds: all of it.
        compilations: by kind, of KINDS those that its torch counts. recompiles: by category.
        graphs, graph_breaks, failures: as Dynamo counts them.
        recompiles_after_warm: those of a rank that had been warm.
        fallbacks: frames that hit the recompile limit and run eagerly from then on.
        cache_hits, cache_misses: by cache.
        graphs_before: graphs that Dynamo had captured before the agent attached.
        wrappers: how many functions and modules the user handed to ``torch.compile``.
        disabled: by what of DISABLED compilation is turned off; ``None`` where it is on, or nobody
        knows. cudagraph_skips: how often CUDA graphs were asked for and left out.
    """

    begun: bool = False
    open: OpenActivity | None = None
    last_end_at: float | None = None
    seconds: float = 0.0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    compilations: Mapping[str, int] | None = None
    recompiles: Mapping[str, int] | None = None
    graphs: int | None = None
    graph_breaks: int | None = None
    failures: int | None = None
    recompiles_after_warm: int | None = None
    fallbacks: int | None = None
    cache_hits: Mapping[str, int] | None = None
    cache_misses: Mapping[str, int] | None = None
    graphs_before: int | None = None
    wrappers: int | None = None
    disabled: str | None = None
    cudagraph_skips: int | None = None

    @property
    def graphs_compiled(self) -> int | None:
        """Compilations of graphs: a kernel's autotuning and a CUDA graph's recording are none."""
        counts = self.compilations
        return None if counts is None else sum(counts.get(kind, 0) for kind in _OF_GRAPHS)

    @property
    def recompiles_total(self) -> int | None:
        return None if self.recompiles is None else sum(self.recompiles.values())


class Underway(Struct, frozen=True, kw_only=True):
    """What is being compiled, or was compiled anew: all that is known of it.

    Attributes:
        kind: one of ``record.KINDS``; ``None`` where that is not known yet.
        name, file, line: the user's function. backward: it is that function's backward.
        reason, category: why it is compiled again, in PyTorch's words; a backward is for what its
        forward was; of a first compile ``None``.
    """

    kind: str | None = None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    backward: bool = False
    reason: str | None = None
    category: str | None = None


class Log(Struct, frozen=True, kw_only=True):
    """What the compiler did, one by one, as far as a journal tells; empty where none was read.

    Attributes:
        compilations, fallbacks: the last ones, oldest first. skips: of CUDA graphs, likewise, of
        which no compilation tells.
        breaks: reasons of graph breaks.
        functions: what each function cost, the dearest first; ``None`` where no journal was read.
        underway: what the activity in progress compiles; ``None`` where there is none, or nothing
        of it is known yet.
        reopened_by: the last compilation of the warm-up now open that says why it was needed.
        varying: dimensions for which functions were compiled again.
        long_steps: those that took far longer than usual and did not compile: the last ones and
        the longest, oldest first.
    """

    compilations: tuple[Compilation, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    functions: tuple[FunctionCost, ...] | None = None
    underway: Underway | None = None
    reopened_by: Compilation | None = None
    varying: tuple[VaryingDim, ...] = ()
    long_steps: tuple[LongStep, ...] = ()


class WarmupSpan(Struct, frozen=True, kw_only=True):
    """One warm-up that has ended: when, how long it was, and how many steps it took."""

    ended_at: float
    seconds: float
    steps: int


class Warmups(Struct, frozen=True, kw_only=True):
    """The rank's warm-ups.

    Attributes:
        clean_steps_needed: how many clean steps in a row make it warm.
        latest: the last one, ``None`` until it has ended and while it is open again.
        first: the first one that ended. count: how many did; ``None`` where that is not told.
        warm_at_step: the step that made, or would make, the rank warm.
        earlier_seconds: of the first warm-ups of comparable earlier runs, as far as they are
        remembered and somebody asked, newest first.
    """

    clean_steps_needed: int
    latest: WarmupSpan | None = None
    first: WarmupSpan | None = None
    count: int | None = None
    warm_at_step: int | None = None
    earlier_seconds: tuple[float, ...] = ()


class Progress(Struct, frozen=True, kw_only=True):
    """How the rank gets on.

    Attributes:
        state_since: when its state began. quiet_seconds: since the last sign of progress: a step,
        the end of an activity, or attaching. compiler_quiet_seconds: since the last activity
        ended; ``None`` where none has. stall_limit_seconds: how long it may stay quiet before it
        counts as stalled. batch_quiet_seconds: since the last batch was handed out.
        open_seconds: of a rank that compiles, since its warm-up began, or since the last step
        where that is later: one first step is one story, however many graphs it takes.
        compile_limit_seconds: how long an activity may take before it counts as long;
        compile_precedent_seconds: the longest one that explains so much, ``None`` where none does.
    """

    quiet_seconds: float
    state_since: float | None = None
    compiler_quiet_seconds: float | None = None
    stall_limit_seconds: float | None = None
    batch_quiet_seconds: float | None = None
    open_seconds: float | None = None
    compile_limit_seconds: float | None = None
    compile_precedent_seconds: float | None = None


class Pauses(Struct, frozen=True, kw_only=True):
    """What the training waited for that is no compilation; ``None`` where its torch has no seam.

    Attributes:
        saving_seconds: checkpoints, the one in progress included. saving_since: when that began,
        ``None`` where there is none; saving_for_seconds: since then. evaluating_*: the same of
        evaluations, and evaluations: how many have ended; ``None`` until one was told of.
    """

    saving_seconds: float | None = None
    saving_since: float | None = None
    saving_for_seconds: float | None = None
    evaluating_seconds: float | None = None
    evaluating_since: float | None = None
    evaluating_for_seconds: float | None = None
    evaluations: int | None = None


class Life(Struct, frozen=True, kw_only=True):
    """Whether its process lives, and how it ended.

    Attributes:
        alive: it holds the lock of its record, whatever it said of its end.
        pid: as this monitor's pid namespace has it; ``None`` where it is gone or cannot be seen.
        end: ``finished``, ``failed``, ``interrupted`` or ``detached``; ``None`` where it has not
        said so. exit_code: 0 to 255. exception: the type's name of the one that ended it.
        killed_at_end: its program had come to its end, and it was killed before it could exit.
    """

    alive: bool
    pid: int | None = None
    end: str | None = None
    exit_code: int | None = None
    exception: str | None = None
    killed_at_end: bool = False


class Workers(Struct, frozen=True, kw_only=True):
    """The rank's compile workers: busy where their CPU time grows, else idle."""

    busy: int
    idle: int

    @property
    def count(self) -> int:
        return self.busy + self.idle


class Agent(Struct, frozen=True, kw_only=True):
    """How the agent fares in the training, and so how far its figures can be trusted.

    Attributes:
        version: of Warmwatch. missing: seams that this torch does not have.
        errors: its own, which it swallowed. lines_dropped: of the journal, which it could not
        write. lines_broken: of the journal, which this monitor could not read.
    """

    version: str | None = None
    missing: tuple[str, ...] = ()
    errors: int | None = None
    lines_dropped: int | None = None
    lines_broken: int | None = None


class Figures(Struct, frozen=True, kw_only=True):
    """All figures of one rank.

    ``workers`` is ``None`` where nobody looked at them twice, ``memory`` until CUDA is up,
    ``baseline`` where no steps were to run eagerly on purpose.
    """

    who: Who
    steps: Steps
    compile: Compile
    warmups: Warmups
    progress: Progress
    life: Life
    agent: Agent
    log: Log = Log()
    pauses: Pauses = Pauses()
    workers: Workers | None = None
    memory: Memory | None = None
    worth: Worth = Worth()
    baseline: Baseline | None = None
