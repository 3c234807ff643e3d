"""Schema of one rank of ``/status``."""

from typing import Annotated

from msgspec import Meta, Struct

from warmwatch.shared.states import CONDITIONS, State
from warmwatch_monitor.status.schema.compile import Compile, Epoch, Joules, Number, Seconds


class WarmupSpan(Struct, frozen=True, kw_only=True):
    """A warm-up that has ended; all null if none has."""

    ended_at: Annotated[Epoch | None, Meta(description="When its last compile activity ended.")] = (
        None
    )
    seconds: Annotated[
        Seconds | None, Meta(description="From its first compile activity to the end of its last.")
    ] = None
    steps: Annotated[int | None, Meta(description="Steps within it.")] = None


class Warmup(WarmupSpan, frozen=True, kw_only=True):
    """The latest warm-up. Its figures are null until it has ended, and while it recompiles."""

    ended: Annotated[bool, Meta(description="Whether it has ended and nothing has begun since.")]
    count: Annotated[
        int | None,
        Meta(
            description="How often the rank became warm; null if the answer comes from Prometheus."
        ),
    ] = None
    first: Annotated[
        WarmupSpan | None, Meta(description="The first one; null until it has ended.")
    ] = None


class StepSeconds(Struct, frozen=True, kw_only=True):
    """Lengths of steps. Median and p99 are of clean steps, within 2.5 % of the true ones."""

    first: Annotated[
        Seconds | None, Meta(description="Length of step 1, with most of the compile time.")
    ] = None
    first_at: Annotated[
        Epoch | None, Meta(description="When the first step ended; null before it.")
    ] = None
    last: Annotated[Seconds | None, Meta(description="Length of the last step.")] = None
    recent: Annotated[
        Seconds | None,
        Meta(
            description="The real speed: median length of the clean steps of the last 60 s, 3 to "
            "64 of them, none from before the last compile activity as soon as there are 3. Null "
            "before."
        ),
    ] = None
    recent_steps: Annotated[int | None, Meta(description="Number of steps in `recent`.")] = None
    median: Annotated[
        Seconds | None,
        Meta(description="Median over the whole run; null before the first clean step."),
    ] = None
    p99: Annotated[
        Seconds | None, Meta(description="99th percentile; null before the first clean step.")
    ] = None
    typical: Annotated[
        Seconds | None,
        Meta(
            description="Over the whole run: mean of the clean steps if they are similar, else "
            "their median; null before the first clean step."
        ),
    ] = None
    median_low: Annotated[
        Seconds | None,
        Meta(
            description="Lower bound of the median, at 97.5 %. Estimated from bins that are 5 % "
            "wide."
        ),
    ] = None
    median_high: Annotated[
        Seconds | None,
        Meta(
            description="Upper bound of the median, at 97.5 %. Estimated from bins that are 5 % "
            "wide."
        ),
    ] = None
    clean_count: Annotated[int | None, Meta(description="Number of clean steps.")] = None
    clean_seconds: Annotated[Seconds | None, Meta(description="Time of all clean steps.")] = None


class LongStep(Struct, frozen=True, kw_only=True):
    """A step that took far longer than usual without compile activity."""

    step: Annotated[int, Meta(description="Number of the step, from 1.")]
    seconds: Annotated[Seconds, Meta(description="Time since the step before it, pauses included.")]
    usual_seconds: Annotated[Seconds, Meta(description="Median of the clean steps at that time.")]
    checkpoint_seconds: Annotated[Seconds, Meta(description="Time of it spent saving.")]
    evaluation_seconds: Annotated[
        Seconds,
        Meta(description="Time of it spent evaluating, if the program reports evaluations."),
    ]
    between_cells_seconds: Annotated[
        Seconds, Meta(description="Time of it in which no cell of the notebook ran.")
    ]
    data_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Time of it spent waiting for batches of DataLoaders; null if there was "
            "no batch in it."
        ),
    ] = None
    batches: Annotated[
        int | None, Meta(description="Batches of DataLoaders in it; null: none.")
    ] = None
    evaluation: Annotated[
        bool,
        Meta(
            description="Whether it was an evaluation: reported as one, or with far more batches "
            "than usual."
        ),
    ]
    words: Annotated[str, Meta(description="The same as a clause.")]


class Slower(Struct, frozen=True, kw_only=True):
    """How a rank is slower than it was since its warm-up."""

    ratio: Annotated[Number, Meta(description="`seconds` divided by `before`.")]
    seconds: Annotated[Seconds, Meta(description="Length of a step now.")]
    before: Annotated[
        Seconds,
        Meta(description="Length of a step at the fastest lasting level since the warm-up."),
    ]
    since_step: Annotated[
        int | None,
        Meta(
            description="Last step at the speed of `before`; null if the monitor did not see the "
            "change."
        ),
    ] = None
    causes: Annotated[
        list[str] | None,
        Meta(
            description="What differs from that time, as far as it is measured; empty: no known "
            "cause. Null if the answer comes from Prometheus."
        ),
    ] = None


class SlowerPeriod(Struct, frozen=True, kw_only=True):
    """A time in which a rank was slower than before."""

    began_at: Annotated[
        Epoch | None, Meta(description="When it began; null if the monitor did not see the change.")
    ] = None
    ended_at: Annotated[Epoch | None, Meta(description="When it ended; null while it lasts.")] = (
        None
    )
    since_step: Annotated[
        int | None,
        Meta(description="The last step before it; null if the monitor did not see the change."),
    ] = None
    until_step: Annotated[int | None, Meta(description="Its last step; null while it lasts.")] = (
        None
    )
    seconds: Annotated[Seconds, Meta(description="Length of a step in it.")]
    before: Annotated[
        Seconds,
        Meta(description="Length of a step at the fastest lasting level since the warm-up."),
    ]
    ratio: Annotated[Number, Meta(description="`seconds` divided by `before`.")]
    causes: Annotated[list[str], Meta(description="Its last known causes; empty: none was known.")]


class Batches(Struct, frozen=True, kw_only=True):
    """Batches that DataLoaders gave to the training process."""

    count: Annotated[int, Meta(description="Number of batches so far.")]
    wait_seconds: Annotated[
        Seconds | None,
        Meta(description="Time that the loop waited for batches; null before the first."),
    ] = None


class Pauses(Struct, frozen=True, kw_only=True):
    """Time that the training spent neither in steps nor compiling."""

    data_seconds: Annotated[
        Seconds | None,
        Meta(description="Waiting for batches of DataLoaders; null before the first batch."),
    ] = None
    checkpoint_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Saving with `torch.save` or a distributed checkpoint, the save in "
            "progress included; null if this PyTorch has no hook point for it."
        ),
    ] = None
    saving_since: Annotated[
        Epoch | None, Meta(description="When the save in progress began, else null.")
    ] = None
    evaluations: Annotated[
        int | None,
        Meta(description="Evaluations that have ended; null before the first is reported."),
    ] = None
    evaluation_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Evaluating, the evaluation in progress included; null before the first "
            "is reported."
        ),
    ] = None
    evaluating_since: Annotated[
        Epoch | None, Meta(description="When the evaluation in progress began, else null.")
    ] = None
    between_cells_since: Annotated[
        Epoch | None,
        Meta(
            description="When the last notebook cell ended; null while one runs, and outside "
            "notebooks."
        ),
    ] = None


class Cost(Struct, frozen=True, kw_only=True):
    """Time that compiling cost."""

    first_step_seconds: Annotated[Seconds | None, Meta(description="Length of step 1.")] = None
    steady_step_seconds: Annotated[
        Seconds | None, Meta(description="Median length of the clean steps.")
    ] = None
    beyond_steady_seconds: Annotated[
        Seconds | None,
        Meta(
            description="How much longer the steps with compile activity took than clean ones "
            "would."
        ),
    ] = None
    steps_touched: Annotated[int | None, Meta(description="Steps with compile activity.")] = None


class Baseline(Struct, frozen=True, kw_only=True):
    """Eager steps at the start, run on request, and the gain from compiling."""

    steps: Annotated[
        int, Meta(description="Number of baseline steps: as requested, then as they were.")
    ]
    seconds: Annotated[
        Seconds | None, Meta(description="Median of the baseline steps; null before the last one.")
    ] = None
    speed_up: Annotated[
        Number | None,
        Meta(
            description="Length of an eager step divided by that of a clean step; null before it "
            "was warm."
        ),
    ] = None
    break_even_steps: Annotated[
        int | None,
        Meta(
            description="Steps after the baseline until compiling has paid off; null if clean "
            "steps are not faster."
        ),
    ] = None
    paid_back_at_step: Annotated[
        int | None, Meta(description="The step at which compiling has paid off; null before.")
    ] = None


class Place(Struct, frozen=True, kw_only=True):
    """A line of the user's code."""

    name: Annotated[str, Meta(description="Name of the function.")]
    file: Annotated[str, Meta(description="Base name of its file.")]
    line: Annotated[int, Meta(description="The line that ran.")]


class End(Struct, frozen=True, kw_only=True):
    """How a rank ended."""

    how: Annotated[
        str, Meta(description="`finished`, `failed`, `interrupted`, `detached` or `lost`.")
    ]
    exit_code: Annotated[int | None, Meta(description="0 to 255; null if it is unknown.")] = None
    exception: Annotated[
        str | None, Meta(description="Type of the uncaught exception; null if none ended it.")
    ] = None
    place: Annotated[
        Place | None,
        Meta(
            description="The user's line nearest to where the exception was raised; null without "
            "an exception, or if only library code was involved."
        ),
    ] = None
    signal: Annotated[
        str | None,
        Meta(
            description="Name of the signal that killed it, such as `SIGABRT`; null if none did, "
            "or if it is unknown."
        ),
    ] = None
    out_of_memory: Annotated[
        bool | None,
        Meta(
            description="Whether the kernel killed it because memory ran out; null if that is "
            "unknown."
        ),
    ] = None
    ended_together: Annotated[
        bool | None,
        Meta(
            description="Whether all ranks of the run ended within seconds; null with one rank, "
            "or if that is unknown."
        ),
    ] = None


class Worth(Struct, frozen=True, kw_only=True):
    """Work per step of this rank, and the throughput of its clean steps."""

    tokens_per_second: Annotated[
        Number | None,
        Meta(description="Tokens per second in clean steps; null without `tokens_per_step`."),
    ] = None
    samples_per_second: Annotated[
        Number | None,
        Meta(description="Samples per second in clean steps; null without `samples_per_step`."),
    ] = None
    mfu_ratio: Annotated[
        Number | None,
        Meta(
            description="Model FLOPs utilization of clean steps: the operations of a step, over "
            "its length, over what the rank's GPUs can do; null if one of these is unknown."
        ),
    ] = None
    tokens_per_step: Annotated[
        int | None, Meta(description="As set by the user or the framework.")
    ] = None
    samples_per_step: Annotated[
        int | None, Meta(description="As set by the user or the framework.")
    ] = None
    flops_per_step: Annotated[
        Number | None, Meta(description="As set by the user, else by `formula`.")
    ] = None
    formula: Annotated[
        str | None, Meta(description="Formula for `flops_per_step`; null if the user set it.")
    ] = None
    parameters: Annotated[int | None, Meta(description="Parameters of the model.")] = None
    estimated: Annotated[
        bool, Meta(description="Whether `parameters` is the number that the optimizers hold.")
    ]
    dtype: Annotated[str, Meta(description="The dtype whose peak the MFU refers to.")]
    peak_flops: Annotated[
        Number | None,
        Meta(
            description="Dense operations a second of the rank's GPUs together, by the data sheets."
        ),
    ] = None


class Condition(Struct, frozen=True, kw_only=True):
    """A condition that holds in addition to the state."""

    condition: Annotated[str, Meta(description=f"{', '.join(f'`{name}`' for name in CONDITIONS)}.")]
    words: Annotated[str, Meta(description="The same as a clause.")]


class Energy(Struct, frozen=True, kw_only=True):
    """Energy of the rank's GPUs since this monitor first saw the rank."""

    compile_joules: Annotated[
        Joules | None, Meta(description="Energy while it compiled; null if not measured.")
    ] = None
    covered_seconds: Annotated[
        Seconds,
        Meta(
            description="Compile time that `compile_joules` covers: less than all if the monitor "
            "started late."
        ),
    ]
    joules_per_clean_step: Annotated[
        Joules | None, Meta(description="Mean energy of a clean step.")
    ] = None


class Compiler(Struct, frozen=True, kw_only=True):
    """A compiler process below a training process."""

    pid: Annotated[int, Meta(description="In the monitor's pid namespace.")]
    name: Annotated[
        str, Meta(description="`cc1plus`, `ptxas`, `compile worker`...: of a closed list.")
    ]
    cpu_seconds: Annotated[Seconds, Meta(description="CPU time so far.")]
    busy: Annotated[
        bool | None, Meta(description="Whether its CPU time grows; null in the first poll.")
    ] = None
    stopped: Annotated[
        bool, Meta(description="Stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger.")
    ]


class Process(Struct, frozen=True, kw_only=True):
    """The training process and its compile workers, as the host measures them."""

    cpu_seconds: Annotated[Seconds, Meta(description="CPU time so far.")]
    resident_bytes: Annotated[int, Meta(description="Resident memory, in bytes.")]
    cpu_ratio: Annotated[
        Number | None, Meta(description="Its share of one core in the last poll, from 0.")
    ] = None
    threads: Annotated[int | None, Meta(description="Threads.")] = None
    workers_busy: Annotated[
        int | None, Meta(description="Compile workers whose CPU time grows.")
    ] = None
    workers_idle: Annotated[
        int | None, Meta(description="Compile workers whose CPU time does not.")
    ] = None
    stopped: Annotated[
        bool, Meta(description="Stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger.")
    ]
    compilers: Annotated[
        list[Compiler],
        Meta(description="The busiest compilers below it, without idle compile workers."),
    ]


class TorchMemory(Struct, frozen=True, kw_only=True):
    """Memory of CUDA's caching allocator over the process's devices. Read rarely."""

    at: Annotated[
        Epoch | None,
        Meta(description="When it was read; null if the answer comes from Prometheus."),
    ] = None
    allocated: Annotated[int | None, Meta(description="Bytes in tensors.")] = None
    reserved: Annotated[int | None, Meta(description="Bytes taken from the device.")] = None
    peak_allocated: Annotated[
        int | None, Meta(description="Peak of allocated bytes since the program reset it.")
    ] = None
    peak_reserved: Annotated[
        int | None, Meta(description="Peak of reserved bytes since the program reset it.")
    ] = None


class Rank(Struct, frozen=True, kw_only=True):
    """One training process of a run."""

    rank: Annotated[int, Meta(description="Its number in the run, as set by the launcher.")]
    state: Annotated[State, Meta(description="What it does.")]
    attached_at: Annotated[Epoch | None, Meta(description="When its agent attached.")] = None
    since: Annotated[
        Epoch | None, Meta(description="When that state began; null if it is unknown.")
    ] = None
    steps: Annotated[int, Meta(description="Training steps so far.")]
    clean_steps: Annotated[int, Meta(description="Consecutive clean steps, up to now.")]
    compile: Annotated[Compile, Meta(description="What the compiler does and did.")]
    warm_by: Annotated[
        str | None,
        Meta(
            extra_json_schema={"enum": ["steps", "quiet", "ready", None]},
            description="Why it counts as warm: clean `steps`; `quiet`, nothing compiled for long "
            "in a process without steps; or `ready`, by `warmwatch.ready()`. Null if it is not "
            "warm.",
        ),
    ] = None
    warmup: Annotated[Warmup, Meta(description="Its warm-ups.")]
    last_step_age_seconds: Annotated[
        Seconds | None,
        Meta(description="Since the last step; null before the first and once the rank has ended."),
    ] = None
    step_seconds: Annotated[StepSeconds, Meta(description="Lengths of its steps.")]
    long_steps: Annotated[
        list[LongStep],
        Meta(
            description="Steps that took at least four times as long as usual, and a second, "
            "without compile activity: the last ones and the longest, oldest first."
        ),
    ]
    slower: Annotated[
        Slower | None,
        Meta(
            description="A lasting level at least 1.5 times the reference; null if there is none."
        ),
    ] = None
    slower_periods: Annotated[
        list[SlowerPeriod],
        Meta(
            description="The last times, at most 16, in which it was slower; also of an ended rank."
        ),
    ] = []
    batches: Annotated[
        Batches | None,
        Meta(
            description="Batches of DataLoaders; null if this PyTorch or "
            "Prometheus does not report them."
        ),
    ] = None
    pauses: Annotated[
        Pauses, Meta(description="Time spent saving, evaluating and waiting for data.")
    ]
    cost: Annotated[Cost, Meta(description="What compiling cost it.")]
    baseline: Annotated[
        Baseline | None,
        Meta(description="The eager baseline; null without `attach(baseline_steps=...)`."),
    ] = None
    worth: Annotated[
        Worth | None, Meta(description="Throughput and MFU; null if the work of a step is unknown.")
    ] = None
    conditions: Annotated[list[Condition], Meta(description="The conditions that hold.")]
    gpus: Annotated[list[str], Meta(description="UUIDs of its GPUs.")]
    energy: Annotated[
        Energy | None, Meta(description="Energy of its GPUs; null if none was measured.")
    ] = None
    evidence: Annotated[
        list[str], Meta(description="The facts behind the state, the most important first.")
    ]
    pid: Annotated[
        int | None,
        Meta(description="Its pid in the monitor's pid namespace; null if the process is gone."),
    ] = None
    host: Annotated[str | None, Meta(description="The host that it runs on.")] = None
    attempt: Annotated[
        int | None, Meta(description="Restarts of the run by its launcher, from 0.")
    ] = None
    collective_timeout_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Shortest timeout of its process groups' collectives; null if it has none."
        ),
    ] = None
    collective_backend: Annotated[
        str | None, Meta(description="Of that process group, such as `nccl`.")
    ] = None
    alive: Annotated[bool, Meta(description="Whether its process lives.")]
    end: Annotated[End | None, Meta(description="How it ended; null while it has not.")] = None
    process: Annotated[
        Process | None,
        Meta(
            description="What the host measures of the process; null if the host does not see it."
        ),
    ] = None
    agent_errors: Annotated[
        int | None, Meta(description="Errors of the agent itself, which it caught.")
    ] = None
    journal_unread_bytes: Annotated[
        int | None,
        Meta(
            description="Bytes of its journal that the monitor has not read yet, or skips because "
            "it is too long. Unless it is 0, the lists of compilations, recompiles, graph breaks "
            "and functions, and sums over them, are incomplete."
        ),
    ] = None
    torch_memory_bytes: Annotated[
        TorchMemory | None,
        Meta(
            description="Memory of CUDA's allocator; null before CUDA is initialized, and "
            "without statistics."
        ),
    ] = None
