"""Schema of one rank of ``/status``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from warmwatch.shared.verdict import CONDITIONS, State
from warmwatch_monitor.status.schema.compile import Compile, Epoch, Joules, Seconds


class WarmupSpan(BaseModel):
    """One warm-up that has ended; all null where none has."""

    ended_at: Epoch | None = Field(description="When its last compile activity ended.")
    seconds: Seconds | None = Field(description="From its first activity to the end of its last.")
    steps: int | None = Field(description="Steps that it took.")


class Warmup(WarmupSpan):
    """The latest warm-up; its figures are null until it has ended, and while it is open again."""

    ended: bool = Field(description="Whether it has ended and nothing has begun since.")
    count: int | None = Field(
        description="How many times the rank became warm; null where a Prometheus was asked."
    )
    first: WarmupSpan | None = Field(description="The first one; null until it has ended.")


class StepSeconds(BaseModel):
    """Lengths of steps. Median and p99 are of clean steps, within 2.5 % of the true ones."""

    first: Seconds | None = Field(description="Of step 1, which holds most of the compiling.")
    first_at: float | None = Field(description="When the first step ended; null before it.")
    last: Seconds | None = Field(description="Of the last step.")
    recent: Seconds | None = Field(
        description="The real speed: median length of the clean steps of the last 60 s, 3 to 64 of "
        "them, none from before the last compile activity as soon as there are 3. Null before."
    )
    recent_steps: int | None = Field(description="Of how many steps `recent` is the median.")
    median: Seconds | None = Field(
        description="Over the whole run; null before the first clean step."
    )
    p99: Seconds | None = Field(description="99th percentile; null before the first clean step.")
    typical: Seconds | None = Field(
        description="Over the whole run: the clean steps' mean where they are alike, else their "
        "median; null before the first of them."
    )
    median_low: Seconds | None = Field(
        description="The median is above this, at 97.5 %, as far as bins tell: each is 5 % wide, "
        "and lengths are taken to lie evenly in it. `typical` is exact where they are alike."
    )
    median_high: Seconds | None = Field(description="Likewise below this.")
    clean_count: int | None = Field(description="How many steps were clean.")
    clean_seconds: Seconds | None = Field(description="What the clean steps took together.")


class LongStep(BaseModel):
    """A step that came far later than usual, though nothing compiled in it."""

    step: int = Field(description="Which one, from 1.")
    seconds: Seconds = Field(description="Since the one before, pauses included.")
    usual_seconds: Seconds = Field(description="Median of the clean steps, then.")
    checkpoint_seconds: Seconds = Field(description="Of it, saving.")
    evaluation_seconds: Seconds = Field(description="Of it, evaluating, where that was told.")
    between_cells_seconds: Seconds = Field(
        description="Of it, with no cell of its notebook running."
    )
    data_seconds: Seconds | None = Field(
        description="Of it, waiting for batches of DataLoaders; null where none gave one in it."
    )
    batches: int | None = Field(description="Batches that were handed out in it; null: none.")
    evaluation: bool = Field(
        description="It was told of, or far more batches were handed out than in a usual step."
    )
    words: str = Field(description="The same in one clause.")


class Slower(BaseModel):
    """How a rank is slower than it was since its warm-up."""

    ratio: float = Field(description="How many times as long as `before` a step takes.")
    seconds: Seconds = Field(description="A step, now.")
    before: Seconds = Field(description="A step, at the fastest lasting level since the warm-up.")
    since_step: int | None = Field(
        description="The last step at that speed; null where nobody saw the change."
    )
    causes: list[str] | None = Field(
        description="What differs from then, as far as it is measured; empty: no known cause; null "
        "where it comes from a Prometheus server, which has none."
    )


class SlowerPeriod(BaseModel):
    """A time in which a rank was slower than before."""

    began_at: Epoch | None = Field(description="null where nobody saw the change.")
    ended_at: Epoch | None = Field(description="null while it lasts.")
    since_step: int | None = Field(description="The last step before it; null likewise.")
    until_step: int | None = Field(description="Its last step; null while it lasts.")
    seconds: Seconds = Field(description="A step in it.")
    before: Seconds = Field(description="A step, at the fastest lasting level since the warm-up.")
    ratio: float = Field(description="How many times as long as `before` a step in it took.")
    causes: list[str] = Field(description="The last causes that were known; empty: none was.")


class Batches(BaseModel):
    """What the DataLoaders handed out in the training process."""

    count: int = Field(description="Batches so far.")
    wait_seconds: Seconds | None = Field(
        description="Time that the loop waited for them; null until there was one."
    )


class Pauses(BaseModel):
    """What the training waited for that is no compilation."""

    data_seconds: Seconds | None = Field(
        description="For batches of DataLoaders; null until there was one."
    )
    checkpoint_seconds: Seconds | None = Field(
        description="For `torch.save` and the distributed checkpoint, the one in progress included;"
        " null where this torch has no seam for it."
    )
    saving_since: Epoch | None = Field(description="When the save in progress began, else null.")
    evaluations: int | None = Field(
        description="Evaluations that have ended; null until one was told of."
    )
    evaluation_seconds: Seconds | None = Field(
        description="For evaluations, the one in progress included; null likewise."
    )
    evaluating_since: Epoch | None = Field(
        description="When the evaluation in progress began, else null."
    )
    between_cells_since: Epoch | None = Field(
        description="When the last cell of its notebook ended; null while one runs, and in none."
    )


class Cost(BaseModel):
    """What the compiler cost in time."""

    first_step_seconds: Seconds | None = Field(description="Length of step 1.")
    steady_step_seconds: Seconds | None = Field(description="Median length of the clean steps.")
    beyond_steady_seconds: Seconds | None = Field(
        description="How much longer the steps with compile activity took than clean ones would."
    )
    steps_touched: int | None = Field(description="Steps that held compile activity.")


class Baseline(BaseModel):
    """The first steps, where they were to run eagerly on purpose, and what compiling brought."""

    steps: int = Field(description="How many; once it is over, how many they were.")
    seconds: Seconds | None = Field(description="The median of them; null before the last one.")
    speed_up: float | None = Field(
        description="How many times as fast as eager its clean steps are; null before it was warm."
    )
    break_even_steps: int | None = Field(
        description="Steps after the baseline that make good what compiling cost beyond clean "
        "steps; null where they are no faster."
    )
    paid_back_at_step: int | None = Field(description="The step by which they have.")


class Place(BaseModel):
    """A line of the user's code."""

    name: str = Field(description="The function.")
    file: str = Field(description="Base name of its file.")
    line: int = Field(description="The line that was executed.")


class End(BaseModel):
    """How a rank ended."""

    how: str = Field(description="`finished`, `failed`, `interrupted`, `detached` or `lost`.")
    exit_code: int | None = Field(description="0 to 255; null where nobody could know.")
    exception: str | None = Field(description="Type of the uncaught exception, if one ended it.")
    place: Place | None = Field(
        description="The line of the user's code nearest to where it was raised; null where none "
        "ended it, or only library code was involved."
    )
    signal: str | None = Field(
        description="Name of the signal that killed it, such as `SIGABRT`; null where none did, or "
        "nobody saw."
    )
    out_of_memory: bool | None = Field(
        description="The kernel killed it for want of memory; null where nobody can tell."
    )
    ended_together: bool | None = Field(
        description="All ranks of the run ended within seconds; null of one rank, or not known."
    )


class Worth(BaseModel):
    """What a step of this rank is worth, and what its clean steps come to."""

    tokens_per_second: float | None = Field(description="Of clean steps; null where not said.")
    samples_per_second: float | None = Field(description="Likewise.")
    mfu_ratio: float | None = Field(
        description="Model FLOPs utilization of clean steps: the operations of a step, over its "
        "length, over what the rank's GPUs can do; null where one of them is not known."
    )
    tokens_per_step: int | None = Field(description="As the user or the framework said.")
    samples_per_step: int | None = Field(description="Likewise.")
    flops_per_step: float | None = Field(description="As the user said, else by the formula.")
    formula: str | None = Field(description="By which the operations were worked out, if by any.")
    parameters: int | None = Field(description="Of the model.")
    estimated: bool = Field(description="The parameters are those that the optimizers hold.")
    dtype: str = Field(description="Whose peak the MFU is held against.")
    peak_flops: float | None = Field(
        description="Dense operations a second of the rank's GPUs together, by the data sheets."
    )


class Condition(BaseModel):
    """What the state alone does not say, for as long as it holds."""

    condition: str = Field(description=f"{', '.join(f'`{name}`' for name in CONDITIONS)}.")
    words: str = Field(description="The same in one clause.")


class Energy(BaseModel):
    """What the rank's GPUs spent since this monitor first saw it."""

    compile_joules: Joules | None = Field(description="While it compiled; null if not measured.")
    covered_seconds: Seconds = Field(
        description="The compile time that this covers: less than all where the monitor came late."
    )
    joules_per_clean_step: Joules | None = Field(description="Mean of the clean steps.")


class Compiler(BaseModel):
    """A process that compiles for a training."""

    pid: int = Field(description="In the monitor's pid namespace.")
    name: str = Field(description="`cc1plus`, `ptxas`, `compile worker`...: of a closed list.")
    cpu_seconds: Seconds = Field(description="CPU time so far.")
    busy: bool | None = Field(description="That grows; null at the first look.")
    stopped: bool = Field(description="Stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger.")


class Process(BaseModel):
    """What the host says of the training process and its compile workers."""

    cpu_seconds: Seconds = Field(description="CPU time so far.")
    resident_bytes: int = Field(description="Resident memory, in bytes.")
    cpu_ratio: float | None = Field(description="Its use of one core at the last look, from 0.")
    threads: int | None = Field(description="Threads.")
    workers_busy: int | None = Field(description="Compile workers whose CPU time grows.")
    workers_idle: int | None = Field(description="Compile workers whose CPU time does not.")
    stopped: bool = Field(description="Stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger.")
    compilers: list[Compiler] = Field(
        description="The busiest that compile for it; idle compile workers are left out."
    )


class TorchMemory(BaseModel):
    """What CUDA's caching allocator held, over the process's devices, at a rare moment."""

    at: Epoch | None = Field(description="When; null where a series tells of it.")
    allocated: int | None = Field(description="Bytes in tensors.")
    reserved: int | None = Field(description="Bytes taken from the device.")
    peak_allocated: int | None = Field(description="The most since the program reset its peaks.")
    peak_reserved: int | None = Field(description="Likewise.")


class Rank(BaseModel):
    """One training process of a run."""

    rank: int = Field(description="Its number in the run, as its launcher says.")
    state: State = Field(description="What it does.")
    attached_at: Epoch | None = Field(description="When its agent attached.")
    since: Epoch | None = Field(description="When that state began; null where nobody can know.")
    steps: int = Field(description="Training steps so far.")
    clean_steps: int = Field(description="Steps in a row without compile activity, up to now.")
    compile: Compile = Field(description="What the compiler does and did.")
    warm_by: Literal["steps", "quiet", "ready"] | None = Field(
        description="What shows that it is warm: clean steps; that nothing has compiled for long, "
        "in a process that marks no steps; or `warmwatch.ready()`. Null where it is not warm."
    )
    warmup: Warmup = Field(description="How it became warm, or whether it still has to.")
    last_step_age_seconds: Seconds | None = Field(
        description="Since the last step; null before the first and once the rank has ended."
    )
    step_seconds: StepSeconds = Field(description="How long its steps took.")
    long_steps: list[LongStep] = Field(
        description="Steps that came at least four times as late as usual, and a second, without "
        "compiling: the last ones and the longest, oldest first."
    )
    slower: Slower | None = Field(
        default=None,
        description="A lasting level at least 1.5 times the reference; null where there is none.",
    )
    slower_periods: list[SlowerPeriod] = Field(
        default=[],
        description="The last times, at most 16, in which it was slower; also of an ended rank.",
    )
    batches: Batches | None = Field(description="Null where this torch, or a series, tells none.")
    pauses: Pauses = Field(description="What took long and was no compilation.")
    cost: Cost = Field(description="What compiling cost it.")
    baseline: Baseline | None = Field(
        description="Null where no steps were to run eagerly: `attach(baseline_steps=...)`."
    )
    worth: Worth | None = Field(description="Null where nothing is known of what a step is worth.")
    conditions: list[Condition] = Field(description="Those that hold.")
    gpus: list[str] = Field(description="Uuids of its GPUs.")
    energy: Energy | None = Field(description="Null where no energy was measured.")
    evidence: list[str] = Field(description="The facts behind the state, weightiest first.")
    pid: int | None = Field(description="In the monitor's pid namespace; null where it is gone.")
    host: str | None = Field(description="The host that it runs on.")
    attempt: int | None = Field(description="Restarts of the run by its launcher, from 0.")
    collective_timeout_seconds: Seconds | None = Field(
        description="After which its collectives give up, the shortest of its process groups; null "
        "where it has none."
    )
    collective_backend: str | None = Field(description="Of that process group, such as `nccl`.")
    alive: bool = Field(description="Whether its process lives.")
    end: End | None = Field(description="How it ended; null while it has not.")
    process: Process | None = Field(description="Null where the host does not see the process.")
    agent_errors: int | None = Field(description="Errors of the agent's own that it swallowed.")
    journal_unread_bytes: int | None = Field(
        description="Bytes of its journal that the monitor has not read yet, or skips because it "
        "is too long. Unless it is 0, the lists of compilations, recompiles, graph breaks and "
        "functions, and sums over them, are incomplete."
    )
    torch_memory_bytes: TorchMemory | None = Field(
        description="Null until CUDA is up, and where the allocator keeps no statistics."
    )
