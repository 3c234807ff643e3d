"""Schema of one rank of ``/status``."""

from typing import Annotated

from msgspec import Meta, Struct

from warmwatch.shared.states import CONDITIONS, State
from warmwatch_monitor.status.schema.compile import Compile, Epoch, Joules, Number, Seconds


class WarmupSpan(Struct, frozen=True, kw_only=True):
    """One warm-up that has ended; all null where none has."""

    ended_at: Annotated[Epoch | None, Meta(description="When its last compile activity ended.")] = (
        None
    )
    seconds: Annotated[
        Seconds | None, Meta(description="From its first activity to the end of its last.")
    ] = None
    steps: Annotated[int | None, Meta(description="Steps that it took.")] = None


class Warmup(WarmupSpan, frozen=True, kw_only=True):
    """The latest warm-up; its figures are null until it has ended, and while it is open again."""

    ended: Annotated[bool, Meta(description="Whether it has ended and nothing has begun since.")]
    count: Annotated[
        int | None,
        Meta(description="How many times the rank became warm; null where a Prometheus was asked."),
    ] = None
    first: Annotated[
        WarmupSpan | None, Meta(description="The first one; null until it has ended.")
    ] = None


class StepSeconds(Struct, frozen=True, kw_only=True):
    """Lengths of steps. Median and p99 are of clean steps, within 2.5 % of the true ones."""

    first: Annotated[
        Seconds | None, Meta(description="Of step 1, which holds most of the compiling.")
    ] = None
    first_at: Annotated[
        Epoch | None, Meta(description="When the first step ended; null before it.")
    ] = None
    last: Annotated[Seconds | None, Meta(description="Of the last step.")] = None
    recent: Annotated[
        Seconds | None,
        Meta(
            description="The real speed: median length of the clean steps of the last 60 s, 3 to "
            "64 of them, none from before the last compile activity as soon as there are 3. Null "
            "before."
        ),
    ] = None
    recent_steps: Annotated[
        int | None, Meta(description="Of how many steps `recent` is the median.")
    ] = None
    median: Annotated[
        Seconds | None, Meta(description="Over the whole run; null before the first clean step.")
    ] = None
    p99: Annotated[
        Seconds | None, Meta(description="99th percentile; null before the first clean step.")
    ] = None
    typical: Annotated[
        Seconds | None,
        Meta(
            description="Over the whole run: the clean steps' mean where they are alike, else "
            "their median; null before the first of them."
        ),
    ] = None
    median_low: Annotated[
        Seconds | None,
        Meta(
            description="The median is above this, at 97.5 %, as far as bins tell: each is 5 % "
            "wide, and lengths are taken to lie evenly in it. `typical` is exact where they are "
            "alike."
        ),
    ] = None
    median_high: Annotated[Seconds | None, Meta(description="Likewise below this.")] = None
    clean_count: Annotated[int | None, Meta(description="How many steps were clean.")] = None
    clean_seconds: Annotated[
        Seconds | None, Meta(description="What the clean steps took together.")
    ] = None


class LongStep(Struct, frozen=True, kw_only=True):
    """A step that came far later than usual, though nothing compiled in it."""

    step: Annotated[int, Meta(description="Which one, from 1.")]
    seconds: Annotated[Seconds, Meta(description="Since the one before, pauses included.")]
    usual_seconds: Annotated[Seconds, Meta(description="Median of the clean steps, then.")]
    checkpoint_seconds: Annotated[Seconds, Meta(description="Of it, saving.")]
    evaluation_seconds: Annotated[
        Seconds, Meta(description="Of it, evaluating, where that was told.")
    ]
    between_cells_seconds: Annotated[
        Seconds, Meta(description="Of it, with no cell of its notebook running.")
    ]
    data_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Of it, waiting for batches of DataLoaders; null where none gave one in it."
        ),
    ] = None
    batches: Annotated[
        int | None, Meta(description="Batches that were handed out in it; null: none.")
    ] = None
    evaluation: Annotated[
        bool,
        Meta(
            description="It was told of, or far more batches were handed out than in a usual step."
        ),
    ]
    words: Annotated[str, Meta(description="The same in one clause.")]


class Slower(Struct, frozen=True, kw_only=True):
    """How a rank is slower than it was since its warm-up."""

    ratio: Annotated[Number, Meta(description="How many times as long as `before` a step takes.")]
    seconds: Annotated[Seconds, Meta(description="A step, now.")]
    before: Annotated[
        Seconds, Meta(description="A step, at the fastest lasting level since the warm-up.")
    ]
    since_step: Annotated[
        int | None,
        Meta(description="The last step at that speed; null where nobody saw the change."),
    ] = None
    causes: Annotated[
        list[str] | None,
        Meta(
            description="What differs from then, as far as it is measured; empty: no known cause; "
            "null where it comes from a Prometheus server, which has none."
        ),
    ] = None


class SlowerPeriod(Struct, frozen=True, kw_only=True):
    """A time in which a rank was slower than before."""

    began_at: Annotated[
        Epoch | None, Meta(description="When it began; null where nobody saw the change.")
    ] = None
    ended_at: Annotated[Epoch | None, Meta(description="When it ended; null while it lasts.")] = (
        None
    )
    since_step: Annotated[
        int | None, Meta(description="The last step before it; null where nobody saw the change.")
    ] = None
    until_step: Annotated[int | None, Meta(description="Its last step; null while it lasts.")] = (
        None
    )
    seconds: Annotated[Seconds, Meta(description="A step in it.")]
    before: Annotated[
        Seconds, Meta(description="A step, at the fastest lasting level since the warm-up.")
    ]
    ratio: Annotated[
        Number, Meta(description="How many times as long as `before` a step in it took.")
    ]
    causes: Annotated[
        list[str], Meta(description="The last causes that were known; empty: none was.")
    ]


class Batches(Struct, frozen=True, kw_only=True):
    """What the DataLoaders handed out in the training process."""

    count: Annotated[int, Meta(description="Batches so far.")]
    wait_seconds: Annotated[
        Seconds | None,
        Meta(description="Time that the loop waited for them; null until there was one."),
    ] = None


class Pauses(Struct, frozen=True, kw_only=True):
    """What the training waited for that is no compilation."""

    data_seconds: Annotated[
        Seconds | None, Meta(description="For batches of DataLoaders; null until there was one.")
    ] = None
    checkpoint_seconds: Annotated[
        Seconds | None,
        Meta(
            description="For `torch.save` and the distributed checkpoint, the one in progress "
            "included; null where this torch has no seam for it."
        ),
    ] = None
    saving_since: Annotated[
        Epoch | None, Meta(description="When the save in progress began, else null.")
    ] = None
    evaluations: Annotated[
        int | None, Meta(description="Evaluations that have ended; null until one was told of.")
    ] = None
    evaluation_seconds: Annotated[
        Seconds | None,
        Meta(description="For evaluations, the one in progress included; null likewise."),
    ] = None
    evaluating_since: Annotated[
        Epoch | None, Meta(description="When the evaluation in progress began, else null.")
    ] = None
    between_cells_since: Annotated[
        Epoch | None,
        Meta(
            description="When the last cell of its notebook ended; null while one runs, and in "
            "none."
        ),
    ] = None


class Cost(Struct, frozen=True, kw_only=True):
    """What the compiler cost in time."""

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
    steps_touched: Annotated[int | None, Meta(description="Steps that held compile activity.")] = (
        None
    )


class Baseline(Struct, frozen=True, kw_only=True):
    """The first steps, where they were to run eagerly on purpose, and what compiling brought."""

    steps: Annotated[int, Meta(description="How many; once it is over, how many they were.")]
    seconds: Annotated[
        Seconds | None, Meta(description="The median of them; null before the last one.")
    ] = None
    speed_up: Annotated[
        Number | None,
        Meta(
            description="How many times as fast as eager its clean steps are; null before it was "
            "warm."
        ),
    ] = None
    break_even_steps: Annotated[
        int | None,
        Meta(
            description="Steps after the baseline that make good what compiling cost beyond clean "
            "steps; null where they are no faster."
        ),
    ] = None
    paid_back_at_step: Annotated[int | None, Meta(description="The step by which they have.")] = (
        None
    )


class Place(Struct, frozen=True, kw_only=True):
    """A line of the user's code."""

    name: Annotated[str, Meta(description="The function.")]
    file: Annotated[str, Meta(description="Base name of its file.")]
    line: Annotated[int, Meta(description="The line that was executed.")]


class End(Struct, frozen=True, kw_only=True):
    """How a rank ended."""

    how: Annotated[
        str, Meta(description="`finished`, `failed`, `interrupted`, `detached` or `lost`.")
    ]
    exit_code: Annotated[
        int | None, Meta(description="0 to 255; null where nobody could know.")
    ] = None
    exception: Annotated[
        str | None, Meta(description="Type of the uncaught exception, if one ended it.")
    ] = None
    place: Annotated[
        Place | None,
        Meta(
            description="The line of the user's code nearest to where it was raised; null where "
            "none ended it, or only library code was involved."
        ),
    ] = None
    signal: Annotated[
        str | None,
        Meta(
            description="Name of the signal that killed it, such as `SIGABRT`; null where none "
            "did, or nobody saw."
        ),
    ] = None
    out_of_memory: Annotated[
        bool | None,
        Meta(description="The kernel killed it for want of memory; null where nobody can tell."),
    ] = None
    ended_together: Annotated[
        bool | None,
        Meta(
            description="All ranks of the run ended within seconds; null of one rank, or not known."
        ),
    ] = None


class Worth(Struct, frozen=True, kw_only=True):
    """What a step of this rank is worth, and what its clean steps come to."""

    tokens_per_second: Annotated[
        Number | None, Meta(description="Of clean steps; null where not said.")
    ] = None
    samples_per_second: Annotated[Number | None, Meta(description="Likewise.")] = None
    mfu_ratio: Annotated[
        Number | None,
        Meta(
            description="Model FLOPs utilization of clean steps: the operations of a step, over "
            "its length, over what the rank's GPUs can do; null where one of them is not known."
        ),
    ] = None
    tokens_per_step: Annotated[
        int | None, Meta(description="As the user or the framework said.")
    ] = None
    samples_per_step: Annotated[int | None, Meta(description="Likewise.")] = None
    flops_per_step: Annotated[
        Number | None, Meta(description="As the user said, else by the formula.")
    ] = None
    formula: Annotated[
        str | None, Meta(description="By which the operations were worked out, if by any.")
    ] = None
    parameters: Annotated[int | None, Meta(description="Of the model.")] = None
    estimated: Annotated[
        bool, Meta(description="The parameters are those that the optimizers hold.")
    ]
    dtype: Annotated[str, Meta(description="Whose peak the MFU is held against.")]
    peak_flops: Annotated[
        Number | None,
        Meta(
            description="Dense operations a second of the rank's GPUs together, by the data sheets."
        ),
    ] = None


class Condition(Struct, frozen=True, kw_only=True):
    """What the state alone does not say, for as long as it holds."""

    condition: Annotated[str, Meta(description=f"{', '.join(f'`{name}`' for name in CONDITIONS)}.")]
    words: Annotated[str, Meta(description="The same in one clause.")]


class Energy(Struct, frozen=True, kw_only=True):
    """What the rank's GPUs spent since this monitor first saw it."""

    compile_joules: Annotated[
        Joules | None, Meta(description="While it compiled; null if not measured.")
    ] = None
    covered_seconds: Annotated[
        Seconds,
        Meta(
            description="The compile time that this covers: less than all where the monitor came "
            "late."
        ),
    ]
    joules_per_clean_step: Annotated[
        Joules | None, Meta(description="Mean of the clean steps.")
    ] = None


class Compiler(Struct, frozen=True, kw_only=True):
    """A process that compiles for a training."""

    pid: Annotated[int, Meta(description="In the monitor's pid namespace.")]
    name: Annotated[
        str, Meta(description="`cc1plus`, `ptxas`, `compile worker`...: of a closed list.")
    ]
    cpu_seconds: Annotated[Seconds, Meta(description="CPU time so far.")]
    busy: Annotated[bool | None, Meta(description="That grows; null at the first look.")] = None
    stopped: Annotated[
        bool, Meta(description="Stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger.")
    ]


class Process(Struct, frozen=True, kw_only=True):
    """What the host says of the training process and its compile workers."""

    cpu_seconds: Annotated[Seconds, Meta(description="CPU time so far.")]
    resident_bytes: Annotated[int, Meta(description="Resident memory, in bytes.")]
    cpu_ratio: Annotated[
        Number | None, Meta(description="Its use of one core at the last look, from 0.")
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
        Meta(description="The busiest that compile for it; idle compile workers are left out."),
    ]


class TorchMemory(Struct, frozen=True, kw_only=True):
    """What CUDA's caching allocator held, over the process's devices, at a rare moment."""

    at: Annotated[Epoch | None, Meta(description="When; null where a series tells of it.")] = None
    allocated: Annotated[int | None, Meta(description="Bytes in tensors.")] = None
    reserved: Annotated[int | None, Meta(description="Bytes taken from the device.")] = None
    peak_allocated: Annotated[
        int | None, Meta(description="The most since the program reset its peaks.")
    ] = None
    peak_reserved: Annotated[int | None, Meta(description="Likewise.")] = None


class Rank(Struct, frozen=True, kw_only=True):
    """One training process of a run."""

    rank: Annotated[int, Meta(description="Its number in the run, as its launcher says.")]
    state: Annotated[State, Meta(description="What it does.")]
    attached_at: Annotated[Epoch | None, Meta(description="When its agent attached.")] = None
    since: Annotated[
        Epoch | None, Meta(description="When that state began; null where nobody can know.")
    ] = None
    steps: Annotated[int, Meta(description="Training steps so far.")]
    clean_steps: Annotated[
        int, Meta(description="Steps in a row without compile activity, up to now.")
    ]
    compile: Annotated[Compile, Meta(description="What the compiler does and did.")]
    warm_by: Annotated[
        str | None,
        Meta(
            extra_json_schema={"enum": ["steps", "quiet", "ready", None]},
            description="What shows that it is warm: clean steps; that nothing has compiled for "
            "long, in a process that marks no steps; or `warmwatch.ready()`. Null where it is not "
            "warm.",
        ),
    ] = None
    warmup: Annotated[Warmup, Meta(description="How it became warm, or whether it still has to.")]
    last_step_age_seconds: Annotated[
        Seconds | None,
        Meta(description="Since the last step; null before the first and once the rank has ended."),
    ] = None
    step_seconds: Annotated[StepSeconds, Meta(description="How long its steps took.")]
    long_steps: Annotated[
        list[LongStep],
        Meta(
            description="Steps that came at least four times as late as usual, and a second, "
            "without compiling: the last ones and the longest, oldest first."
        ),
    ]
    slower: Annotated[
        Slower | None,
        Meta(
            description="A lasting level at least 1.5 times the reference; null where there is "
            "none."
        ),
    ] = None
    slower_periods: Annotated[
        list[SlowerPeriod],
        Meta(
            description="The last times, at most 16, in which it was slower; also of an ended rank."
        ),
    ] = []
    batches: Annotated[
        Batches | None, Meta(description="Null where this torch, or a series, tells none.")
    ] = None
    pauses: Annotated[Pauses, Meta(description="What took long and was no compilation.")]
    cost: Annotated[Cost, Meta(description="What compiling cost it.")]
    baseline: Annotated[
        Baseline | None,
        Meta(description="Null where no steps were to run eagerly: `attach(baseline_steps=...)`."),
    ] = None
    worth: Annotated[
        Worth | None, Meta(description="Null where nothing is known of what a step is worth.")
    ] = None
    conditions: Annotated[list[Condition], Meta(description="Those that hold.")]
    gpus: Annotated[list[str], Meta(description="Uuids of its GPUs.")]
    energy: Annotated[Energy | None, Meta(description="Null where no energy was measured.")] = None
    evidence: Annotated[
        list[str], Meta(description="The facts behind the state, weightiest first.")
    ]
    pid: Annotated[
        int | None, Meta(description="In the monitor's pid namespace; null where it is gone.")
    ] = None
    host: Annotated[str | None, Meta(description="The host that it runs on.")] = None
    attempt: Annotated[
        int | None, Meta(description="Restarts of the run by its launcher, from 0.")
    ] = None
    collective_timeout_seconds: Annotated[
        Seconds | None,
        Meta(
            description="After which its collectives give up, the shortest of its process groups; "
            "null where it has none."
        ),
    ] = None
    collective_backend: Annotated[
        str | None, Meta(description="Of that process group, such as `nccl`.")
    ] = None
    alive: Annotated[bool, Meta(description="Whether its process lives.")]
    end: Annotated[End | None, Meta(description="How it ended; null while it has not.")] = None
    process: Annotated[
        Process | None, Meta(description="Null where the host does not see the process.")
    ] = None
    agent_errors: Annotated[
        int | None, Meta(description="Errors of the agent's own that it swallowed.")
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
        Meta(description="Null until CUDA is up, and where the allocator keeps no statistics."),
    ] = None
