"""Schema of one rank of ``/status``."""

from typing import Annotated

from msgspec import Meta, Struct

from warmwatch.shared.states import CONDITIONS, State
from warmwatch_monitor.published import (
    CompilingWorkers,
    Epoch,
    Joules,
    LimitedBy,
    MemoryGrowth,
    Number,
    Place,
    Process,
    Seconds,
    Slower,
    SlowerPeriod,
    Trend,
    WarmupSpan,
    WorkersMemory,
)
from warmwatch_monitor.status.schema.compile import Compile


class Warmup(WarmupSpan, frozen=True, kw_only=True):
    """The latest warm-up. Its figures are null until it has ended, and while it recompiles."""

    ended: bool
    """Whether it has ended and nothing has begun since."""
    count: int | None = None
    """How often the rank became warm; null if the answer comes from Prometheus."""
    first: WarmupSpan | None = None
    """The first one; null until it has ended."""


class StepSeconds(Struct, frozen=True, kw_only=True):
    """Lengths of steps. Median and p99 are of clean steps, within 2.5 % of the true ones."""

    first: Seconds | None = None
    """Length of step 1, from its first compile activity; without an evaluation before it. Null if
    nothing compiled.
    """
    first_at: Epoch | None = None
    """When the first step ended; null before it."""
    last: Seconds | None = None
    """Length of the last step."""
    recent: Seconds | None = None
    """The real speed: median length of the clean steps of the last 60 s, 3 to 64 of them; their
    mean if they have several lengths in turn. As soon as 3 followed the last compile activity, only
    those count, and right after a sudden change only the newest. With GPUs it is their wall time if
    they only queue kernels. Null before.
    """
    recent_steps: int | None = None
    """Number of steps in `recent`."""
    settled: bool | None = None
    """Whether `recent` is the speed: enough clean steps have come since the last compile activity,
    and they get neither faster nor slower. Null without steps, and from Prometheus.
    """
    newest: Seconds | None = None
    """If they do: the median of the newest of these steps."""
    newest_steps: int | None = None
    """Number of steps in `newest`."""
    trend: Trend | None = None
    """If they do: which of the two."""
    median: Seconds | None = None
    """Median over the whole run; null before the first clean step, and from Prometheus."""
    p99: Seconds | None = None
    """99th percentile; null before the first clean step."""
    typical: Seconds | None = None
    """Over the whole run: mean of the clean steps if they are similar, or if over an eighth have
    another length than the rest (a sixteenth, if it takes over half of the time); else their
    median. Null before the first clean step.
    """
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

    count: int
    """Number of batches so far."""
    wait_seconds: Seconds | None = None
    """Time that the loop waited for batches; null before the first."""


class Pauses(Struct, frozen=True, kw_only=True):
    """Time that the training spent neither in steps nor compiling."""

    data_seconds: Seconds | None = None
    """Waiting for batches of DataLoaders, except in evaluations; null before the first batch."""
    checkpoint_seconds: Seconds | None = None
    """Saving with `torch.save` or a distributed checkpoint, the save in progress included; null if
    this PyTorch has no hook point for it.
    """
    saving_since: Epoch | None = None
    """When the save in progress began, else null."""
    evaluations: int | None = None
    """Evaluations that have ended; null before the first is reported."""
    evaluation_seconds: Seconds | None = None
    """Evaluating, the evaluation in progress included; null before the first is reported."""
    evaluation_batch_seconds: Seconds | None = None
    """Mean time per batch of the evaluations in which nothing compiled; null before the first one
    with batches of a DataLoader.
    """
    before_seconds: Seconds | None = None
    """Saving and evaluating before the first compile activity, or before the end of step 1 if that
    came earlier.
    """
    warmup_seconds: Seconds | None = None
    """Saving and evaluating between the compile activities of the first warm-up, which its length
    includes.
    """
    evaluating_since: Epoch | None = None
    """When the evaluation in progress began, else null."""
    between_cells_since: Epoch | None = None
    """When the last notebook cell ended; null while one runs, and outside notebooks."""


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


class Baseline(Struct, frozen=True, kw_only=True):
    """Eager steps at the start, run on request, and the gain from compiling."""

    steps: int
    """Number of baseline steps: as requested, then as they were."""
    seconds: Seconds | None = None
    """Median of the baseline steps; null before the last one."""
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
    signal: str | None = None
    """Name of the signal that killed it, such as `SIGABRT`; null if none did, or if it is unknown.
    """
    out_of_memory: bool | None = None
    """Whether the kernel killed it because memory ran out; null if that is unknown."""
    ended_together: bool | None = None
    """Whether all ranks of the run ended within seconds; null with one rank, or if that is unknown.
    """


class Worth(Struct, frozen=True, kw_only=True):
    """Work per step of this rank, and the throughput of its clean steps."""

    tokens_per_second: Number | None = None
    """Tokens per second in clean steps; null without `tokens_per_step`."""
    samples_per_second: Number | None = None
    """Samples per second in clean steps; null without `samples_per_step`."""
    mfu_ratio: Number | None = None
    """Model FLOPs utilization of clean steps: the operations of a step, over its length, over what
    the rank's GPUs can do; null if one of these is unknown.
    """
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


class Energy(Struct, frozen=True, kw_only=True):
    """Energy of the rank's GPUs since this monitor first saw the rank."""

    compile_joules: Joules | None = None
    """Energy while it compiled; null if not measured."""
    covered_seconds: Seconds
    """Compile time that `compile_joules` covers: less than all if the monitor started late."""
    joules_per_clean_step: Joules | None = None
    """Mean energy of a clean step."""


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
    state: State
    """What it does."""
    attached_at: Epoch | None = None
    """When its agent attached."""
    since: Epoch | None = None
    """When that state began; null if it is unknown."""
    steps: int
    """Training steps so far."""
    clean_steps: int
    """Consecutive clean steps, up to now."""
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
    last_step_age_seconds: Seconds | None = None
    """Since the last step; null before the first and once the rank has ended."""
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
    collective_timeout_seconds: Seconds | None = None
    """Shortest timeout of its process groups' collectives; null if it has none."""
    collective_backend: str | None = None
    """Of that process group, such as `nccl`."""
    alive: bool
    """Whether its process lives."""
    end: End | None = None
    """How it ended; null while it has not."""
    process: Process | None = None
    """What the host measures of the process; null if the host does not see it."""
    agent_errors: int | None = None
    """Errors of the agent itself, which it caught."""
    journal_unread_bytes: int | None = None
    """Bytes of its journal that the monitor has not read yet, or skips because it is too long.
    Unless it is 0, the lists of compilations, recompiles, graph breaks and functions, and sums over
    them, are incomplete.
    """
    torch_memory_bytes: TorchMemory | None = None
    """Memory of CUDA's allocator; null before CUDA is initialized, and without statistics."""
