"""Schema of one rank of ``/status``, and of its compiler: units, functions, compilations."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from warmwatch.shared.states import CONDITIONS
from warmwatch_monitor.figures.compile import (
    Caller,
    CompileLimit,
    CompilingWorkers,
    Counted,
    Energy,
    Estimate,
    FunctionTotals,
    GpuSeconds,
    Located,
    Phase,
    PublishedCompile,
)
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
    Baseline,
    CollectiveTimeout,
    DataWait,
    LastStepAge,
    Mfu,
    PublishedPauses,
    PublishedSteps,
    StateSince,
    StepCount,
    TypicalStep,
    Warmup,
)

# fields that several types share
Called = Annotated[
    str | None,
    Meta(description="The function as sentences name it: `forward (model.py:31)`, or `the model`."),
]


class _Compiled(Located, frozen=True, kw_only=True):
    called: Called = None
    caller: Caller = None
    reason: str | None = None
    """Why it is recompiled, as PyTorch reports it; null for a first compilation."""
    plain: str | None = None
    """The reason in plain words; null if there are none for it."""
    category: str | None = None
    """Category of the reason, from a closed list; null for a first compilation."""
    again: bool = False
    """Whether it had been compiled before, and PyTorch dropped the result: it is no recompile."""
    advice: str | None = None
    """How to avoid it, and whether other sizes recompile it; null if unknown. In the first warm-up
    only the latter, and what avoids it there.
    """


class Kernel(Struct, frozen=True, kw_only=True):
    """A kernel that took long to compile."""

    name: str
    """Its name, as Inductor gave it."""
    seconds: Seconds
    """How long it compiled."""


class Function(FunctionTotals, frozen=True, kw_only=True):
    """Cost of all compilations of one function, backwards included; `caller` is null if several
    lines called it."""

    called: Called = None
    caller: Caller = None
    others: int
    """Number of functions in this entry, if it is the sum of the cheapest; 0 if it is one function.
    """
    phase_seconds: dict[str, Seconds]
    """Compile time by phase. Phases do not overlap."""
    ops: int | None = None
    """Operators in its last graph."""
    guards: int | None = None
    """Guards of its last compilation."""
    guard_seconds: Seconds | None = None
    """Time of one check of these guards."""
    kernels: int | None = None
    """Kernels compiled; null if PyTorch reports none."""
    slowest_kernels: list[Kernel]
    """The kernels that took longest."""
    allocated_bytes: int | None = None
    """Bytes that CUDA's allocator had allocated after its last compilation; null without CUDA."""
    reserved_bytes: int | None = None
    """Bytes that CUDA's allocator had reserved then; null without CUDA."""


class PastCompilation(_Compiled, frozen=True, kw_only=True):
    """A compilation recorded in the rank's journal."""

    id: str | None = None
    """PyTorch's compile id, such as `0/1`; null if it has none."""
    kind: str
    """Of PyTorch: `forward`, `backward`, `autotune`, `cudagraph` or `other`. Of another compiler:
    `triton`, `cpp_extension`, `custom` or `outside`.
    """
    ended_at: Epoch | None = None
    """When it ended."""
    step: int | None = None
    """Number of steps before it; null if unknown."""
    evaluating: bool = False
    """Whether it was made within an evaluation, so between steps."""
    between_steps: bool = False
    """Whether it was, or was for a call without gradients of a function that trains, as in an
    evaluation that nothing reports. In an event only the former is known.
    """
    seconds: Seconds | None = None
    """How long it took; null if PyTorch does not report it."""
    total_seconds: Seconds | None = None
    """What it cost so far, with its backward, autotuning and CUDA graph recording. Null for these
    parts themselves, and in an event.
    """
    cache: str | None = None
    """`hit` or `miss`; null if no cache was used."""
    at_limit: bool = False
    """Whether its function had reached the recompile limit: nothing was compiled."""
    failure: str | None = None
    """Type of the exception if it failed, else null."""
    failure_reason: str | None = None
    """Why it failed: PyTorch's words, or the types of the exceptions, without their messages."""
    failure_hint: str | None = None
    """What helps: PyTorch's hint in the exception, or what the machine lacks; null if not known."""
    failed_at: str | None = None
    """The traced line that failed, of a library's code with the user's line that called it; null if
    not known."""
    in_a_row: int = 0
    """For how many steps in a row its function has compiled again or failed; 0: neither."""
    instance: int | None = None
    """Number of the module, if another one of its class was compiled before with the same code:
    this is a first compilation, not a recompile. Null otherwise.
    """
    cudagraph_skip: str | None = None
    """Why it has no CUDA graph, as PyTorch reports it; null if it has one, or if this PyTorch does
    not report it.
    """


class Underway(_Compiled, frozen=True, kw_only=True):
    """What the compile activity in progress compiles."""

    kind: str | None = None
    """As in `last`; null as long as it is unknown."""
    backward: bool
    """Whether it is the function's backward."""


class BrokenPlace(Struct, frozen=True, kw_only=True):
    """A function with the lines at which graphs broke."""

    called: str | None = None
    """Where; of a library's code with the user's line that called it. Null: not known."""
    eager: Literal["all", "rest"] | None = None
    """What of that function PyTorch leaves to Python: all of it, or the rest from there on. Null:
    it compiles what follows the break, or another place has what is left to Python."""


class Break(BrokenPlace, frozen=True, kw_only=True):
    """A reason for graph breaks, with its last place."""

    reason: str
    """As PyTorch reports it, redacted."""
    count: int
    """How often it had occurred when it was recorded."""
    also: list[BrokenPlace] = []
    """Its other places, up to the last 8."""
    advice: str | None = None
    """Remedy; null if none is known, or the code is a library's alone and no setting helps."""


class Inefficiency(Struct, frozen=True, kw_only=True):
    """What makes the steady speed, each new input size or each new run slower than necessary.

    `docs/how-to/slow-code.md` has the remedies.
    """

    kind: str
    """`flex_attention`: it is called uncompiled. `register_spills`: a Triton kernel spills
    registers. `cudagraph_sizes`: CUDA graphs were recorded for many sizes.
    `strict_export`: a strict `torch.export` ran. `cache_bypass`: a compile cache stores no such
    graph.
    """
    called: str | None = None
    """Label of the function, or name of the kernel; null if unknown."""
    count: int | None = None
    """Spilled registers of a thread, sizes with CUDA graphs of their own, exports or bypasses."""
    seconds: Seconds | None = None
    """Of one launch of the kernel, as PyTorch measured it while it tuned it; of all recordings of
    CUDA graphs; of all strict exports. Null if unknown.
    """
    bytes: int | None = None
    """Of the scores of `flex_attention` in its first call; what CUDA's allocator reserved from the
    first recording of a CUDA graph to the last. Null if unknown.
    """
    words: str
    """The same in one clause."""
    advice: str
    """What helps."""


class Varying(Located, frozen=True, kw_only=True):
    """A dimension, or a number, that caused recompiles of a function."""

    tensor: str
    """Name of the argument."""
    dim: int | None = None
    """Index of the dimension; null if the argument is a number."""
    values: list[int]
    """Its sizes, in the order of time."""
    complete: bool
    """Whether `values` has all of them."""
    smallest: int | None = None
    """The smallest size."""
    largest: int | None = None
    """The largest size."""
    count: int
    """Recompiles that it caused."""
    seconds: Seconds | None = None
    """Time of these recompiles, with their backwards; null if PyTorch does not report it."""
    step_seconds_before: Seconds | None = None
    """Mean clean step before it first changed; null if too few are known."""
    step_seconds_since: Seconds | None = None
    """Mean clean step since then, of all sizes; null if too few are known."""
    words: str | None = None
    """How to avoid the recompiles; null if it has not changed repeatedly."""


class Compile(PublishedCompile, frozen=True, kw_only=True):
    """What the compiler did and does. Counts are null if this PyTorch does not keep them."""

    phase: Phase = None
    limit_seconds: CompileLimit = None
    idle_seconds: Seconds | None = None
    """How long process, compilers, workers and GPUs of the rank have all been idle while it
    compiles; null if it does not compile, or if that is unknown.
    """
    gpu_seconds: GpuSeconds = None
    cache_hits: int | None = None
    """Hits of Inductor's cache of whole graphs; a compilation may look up several."""
    cache_misses: int | None = None
    """Misses of Inductor's cache of whole graphs."""
    functions: list[Function] | None = None
    """The 10 most expensive functions, then the sum of the others. Null if the answer comes from
    Prometheus.
    """
    progress: Counted | None = None
    """Progress of the activity; null if PyTorch counts nothing."""
    estimate: Estimate | None = None
    """Estimated time left; null if nothing like it compiled here before."""
    underway: Underway | None = None
    """What is compiled now; null if nothing is, or if it is unknown."""
    last: list[PastCompilation]
    """The last five compilations, newest last. Before them the one with a remedy that took longest,
    if it is an earlier one.
    """
    breaks: list[Break]
    """Why Dynamo broke graphs, at most 20 reasons, in the order of time."""
    more_breaks: int
    """Number of further reasons, which `breaks` leaves out."""
    varying: list[Varying]
    """Dimensions and numbers that changed, at most 20, in the order of time."""
    more_varying: int
    """Number of further dimensions and numbers, which `varying` leaves out."""
    inefficiencies: list[Inefficiency]
    """Code that runs slower than it could, at most 10 of each kind."""
    more_inefficiencies: int
    """Number of further ones, of any kind, which `inefficiencies` leaves out."""


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
    prompt: bool
    """Whether Python has a prompt, at which it may have waited for its user."""
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
    `overwritten_output` (of a CUDA graph), or why `torch.compile` refused a call, such as
    `unknown_backend`; null for any other end.
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
