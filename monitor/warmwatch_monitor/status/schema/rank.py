"""Schema of one rank of ``/status``."""

from typing import Annotated

from msgspec import Meta, Struct

from warmwatch.shared.states import CONDITIONS
from warmwatch_monitor.figures.compile import CompilingWorkers, Energy
from warmwatch_monitor.figures.declared import Epoch, Number, Seconds
from warmwatch_monitor.figures.machine import Process
from warmwatch_monitor.figures.rank import (
    AgentErrors,
    CleanSteps,
    EndedTogether,
    JournalUnread,
    LimitedBy,
    MemoryGrowth,
    OutOfMemory,
    Place,
    RankState,
    Slower,
    SlowerPeriod,
    WorkersMemory,
)
from warmwatch_monitor.figures.training import (
    BATCHES,
    TORCH_MEMORY,
    AttachedAt,
    CollectiveTimeout,
    DataWait,
    EagerSteps,
    LastStepAge,
    Mfu,
    PublishedPauses,
    PublishedSteps,
    StateSince,
    StepCount,
    TypicalStep,
    Warmup,
)
from warmwatch_monitor.status.schema.compile import Compile


class StepSeconds(PublishedSteps, frozen=True, kw_only=True):
    """Lengths of steps. Median and p99 are of clean steps, within 2.5 % of the true ones."""

    median: Seconds | None = None
    """Median over the whole run; null before the first clean step, and from Prometheus."""
    p99: Seconds | None = None
    """99th percentile; null before the first clean step."""
    typical: TypicalStep = None
    median_low: Seconds | None = None
    """Lower bound of the median, at 97.5 %. Estimated from bins that are 5 % wide."""
    median_high: Seconds | None = None
    """Upper bound of the median, at 97.5 %. Estimated from bins that are 5 % wide."""
    clean_count: int | None = None
    """Number of clean steps."""
    clean_seconds: Seconds | None = None
    """Time of all clean steps."""


class LongStep(Struct, frozen=True, kw_only=True):
    """A step that took far longer than usual without compile activity."""

    step: int
    """Number of the step, from 1."""
    seconds: Seconds
    """Time since the step before it, pauses included."""
    usual_seconds: Seconds
    """Median of the clean steps at that time."""
    checkpoint_seconds: Seconds
    """Time of it spent saving."""
    evaluation_seconds: Seconds
    """Time of it spent evaluating, if the program reports evaluations."""
    between_cells_seconds: Seconds
    """Time of it in which no cell of the notebook ran."""
    data_seconds: Seconds | None = None
    """Time of it spent waiting for batches, except in evaluations; null if it had no batch."""
    batches: int | None = None
    """Batches of DataLoaders in it; null: none."""
    evaluation: bool
    """Whether it was an evaluation: reported as one, or with far more batches than usual."""
    words: str
    """The same as a clause."""


class Batches(Struct, frozen=True, kw_only=True):
    """Batches that DataLoaders gave to the training process."""

    count: Annotated[int, BATCHES]
    wait_seconds: DataWait = None


class Pauses(PublishedPauses, frozen=True, kw_only=True):
    """Time that the training spent neither in steps nor compiling."""

    data_seconds: DataWait = None


class Cost(Struct, frozen=True, kw_only=True):
    """Time that compiling cost."""

    first_step_seconds: Seconds | None = None
    """Length of step 1."""
    steady_step_seconds: Seconds | None = None
    """Length of a clean step: `typical` of `step_seconds`."""
    beyond_steady_seconds: Seconds | None = None
    """How much longer the steps with compile activity took than clean ones would, without their
    saves and evaluations.
    """
    steps_touched: int | None = None
    """Steps with compile activity."""


class Baseline(EagerSteps, frozen=True, kw_only=True):
    """Eager steps at the start, run on request, and the gain from compiling."""

    speed_up: Number | None = None
    """Length of an eager step divided by that of a clean step; null before it was warm."""
    break_even_steps: int | None = None
    """Steps after the baseline until compiling has paid off; null if clean steps are not faster."""
    paid_back_at_step: int | None = None
    """The step at which compiling has paid off; null before."""


class End(Struct, frozen=True, kw_only=True):
    """How a rank ended."""

    how: str
    """`finished`, `failed`, `interrupted`, `detached` or `lost`."""
    exit_code: int | None = None
    """0 to 255; null if it is unknown."""
    exception: str | None = None
    """Type of the uncaught exception; null if none ended it."""
    place: Place | None = None
    """The user's line nearest to where the exception was raised; null without an exception, or if
    only library code was involved.
    """
    refusal: str | None = None
    """What compiled code refused to do, such as `double_backward` (a second derivative) or
    `overwritten_output` (of a CUDA graph); null for any other end.
    """
    signal: str | None = None
    """Name of the signal that killed it, such as `SIGABRT`; null if none did, or if it is unknown.
    """
    out_of_memory: OutOfMemory = None
    phase: str | None = None
    """Phase of the compile activity in which it ended, `other` if unknown; null without any."""
    compiling_since: Epoch | None = None
    """When that activity began; null without any."""
    ended_together: EndedTogether = None


class Worth(Struct, frozen=True, kw_only=True):
    """Work per step of this rank, and the throughput of its clean steps."""

    tokens_per_second: Number | None = None
    """Tokens per second in clean steps; null without `tokens_per_step`."""
    samples_per_second: Number | None = None
    """Samples per second in clean steps; null without `samples_per_step`."""
    mfu_ratio: Mfu = None
    tokens_per_step: int | None = None
    """As set by the user or the framework."""
    samples_per_step: int | None = None
    """As set by the user or the framework."""
    flops_per_step: Number | None = None
    """As set by the user, else from `formula`."""
    formula: str | None = None
    """Origin of `flops_per_step`: `6 x parameters x tokens`, or `counted in the compiled graphs`;
    null if the user set it.
    """
    excluded: list[str] = []
    """Operations that are not counted, such as the user's Triton kernels, or `eager code` after a
    graph break, a fallback or a failed compilation: the MFU is higher than `mfu_ratio`.
    """
    parameters: int | None = None
    """Parameters of the model."""
    estimated: bool
    """Whether `parameters` is the number that the optimizers hold."""
    dtype: str
    """The dtype of most operations."""
    dtypes: dict[str, Number] = {}
    """Share of the operations by dtype, whose peaks the MFU refers to, the largest first: of the
    counted graphs, else all in the user's `dtype`, else all in `bfloat16`. `other` has no peak.
    """
    peak_flops: Number | None = None
    """Dense operations a second of the rank's GPUs together, by the data sheets: each dtype counts
    for its own peak and for the time that it would take at that peak.
    """


class Condition(Struct, frozen=True, kw_only=True):
    """A condition that holds in addition to the state."""

    condition: Annotated[str, Meta(description=f"{', '.join(f'`{name}`' for name in CONDITIONS)}.")]
    words: str
    """The same as a clause."""
    advice: str | None = None
    """What to do about it; null if that is not known."""


class TorchMemory(Struct, frozen=True, kw_only=True):
    """Memory of CUDA's caching allocator over the process's devices. Read rarely."""

    at: Epoch | None = None
    """When it was read; null if the answer comes from Prometheus."""
    allocated: int | None = None
    """Bytes in tensors."""
    reserved: int | None = None
    """Bytes taken from the device."""
    peak_allocated: int | None = None
    """Peak of allocated bytes since the program reset it."""
    peak_reserved: int | None = None
    """Peak of reserved bytes since the program reset it."""


class Rank(Struct, frozen=True, kw_only=True):
    """One training process of a run."""

    rank: int
    """Its number in the run, as set by the launcher."""
    state: RankState
    attached_at: AttachedAt = None
    since: StateSince = None
    steps: StepCount
    clean_steps: CleanSteps
    compile: Compile
    """What the compiler does and did."""
    warm_by: Annotated[
        str | None, Meta(extra_json_schema={"enum": ["steps", "quiet", "ready", None]})
    ] = None
    """Why it counts as warm: clean `steps`; `quiet`, nothing compiled for long in a process without
    steps; or `ready`, by `warmwatch.ready()`. Null if it is not warm.
    """
    warmup: Warmup
    """Its warm-ups."""
    last_step_age_seconds: LastStepAge = None
    step_seconds: StepSeconds
    """Lengths of its steps."""
    long_steps: list[LongStep]
    """Steps that took at least four times as long as usual, and a second, without compile activity:
    the last ones and the longest, oldest first.
    """
    slower: Slower | None = None
    """A lasting level at least 1.5 times the reference; null if there is none."""
    slower_periods: list[SlowerPeriod] = []
    """The last times, at most 16, in which it was slower; also of an ended rank."""
    limited_by: LimitedBy | None = None
    """What limits its speed while it is warm or eager; of an ended rank, when it last was. Null if
    that is unknown.
    """
    memory_growing: MemoryGrowth | None = None
    """How its memory grows; null if it does not, or if that is not known."""
    workers_memory: WorkersMemory | None = None
    """Its compile workers, if nearly all memory is used and they hold much of it."""
    compiling_workers: CompilingWorkers | None = None
    """What the workers of its DataLoaders compile; null if none has compiled."""
    batches: Batches | None = None
    """Batches of DataLoaders; null if this PyTorch or Prometheus does not report them."""
    pauses: Pauses
    """Time spent saving, evaluating and waiting for data."""
    cost: Cost
    """What compiling cost it."""
    baseline: Baseline | None = None
    """The eager baseline; null without `attach(baseline_steps=...)`."""
    worth: Worth | None = None
    """Throughput and MFU; null if the work of a step is unknown."""
    conditions: list[Condition]
    """The conditions that hold."""
    gpus: list[str]
    """UUIDs of its GPUs."""
    energy: Energy | None = None
    """Energy of its GPUs; null if none was measured."""
    evidence: list[str]
    """The facts behind the state, the most important first."""
    pid: int | None = None
    """Its pid in the monitor's pid namespace; null if the process is gone."""
    host: str | None = None
    """The host that it runs on."""
    attempt: int | None = None
    """Restarts of the run by its launcher, from 0; recompiles are in ``compile``."""
    collective_timeout_seconds: CollectiveTimeout = None
    collective_backend: str | None = None
    """Of that process group, such as `nccl`."""
    alive: bool
    """Whether its process lives."""
    end: End | None = None
    """How it ended; null while it has not."""
    process: Process | None = None
    """What the host measures of the process; null if the host does not see it."""
    agent_errors: AgentErrors = None
    journal_unread_bytes: JournalUnread = None
    torch_memory_bytes: Annotated[TorchMemory | None, TORCH_MEMORY] = None
