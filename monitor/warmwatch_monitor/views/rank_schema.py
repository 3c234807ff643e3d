"""One rank of the ``/status`` answer, for ``/docs`` and ``/openapi.json``.

Answers are written by ``export.answer``, which is faster; the tests hold real ones to these models,
key by key.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from warmwatch.verdict import CONDITIONS, State

Seconds = Annotated[float, Field(json_schema_extra={"x-unit": "s"})]
Epoch = Annotated[float, Field(json_schema_extra={"x-unit": "s since the epoch"})]
Joules = Annotated[float, Field(json_schema_extra={"x-unit": "J"})]


class CacheUse(BaseModel):
    """How often a compile cache had what was asked for."""

    hits: int = Field(description="Found in the cache.")
    misses: int = Field(description="Not found, so compiled.")


class PastCompilation(BaseModel):
    """One compilation that the rank's journal tells of."""

    id: str | None = Field(
        description="PyTorch's compile id, such as `0/1`: null where it gave none."
    )
    kind: str = Field(
        description="`forward`, `backward`, `autotune`, `cudagraph` or `other`, of PyTorch; "
        "`triton`, `cpp_extension` or `custom`, of a compiler beside it."
    )
    seconds: Seconds | None = Field(description="How long it took; null where PyTorch is silent.")
    reason: str | None = Field(
        description="Why it was compiled again, in PyTorch's words; null for a first compilation."
    )
    plain: str | None = Field(description="The same in plain words; null where nobody knows them.")
    category: str | None = Field(
        description="What that reason is about, of a closed list; null for a first compilation."
    )
    advice: str | None = Field(description="What to do about it; null where nothing is known.")
    called: str | None = Field(
        description="It as sentences call it, `forward (model.py:31)` or `the model`."
    )
    name: str | None = Field(description="The function that was compiled.")
    file: str | None = Field(description="The base name of the file that it is in.")
    line: int | None = Field(description="The line on which it begins.")
    cache: str | None = Field(description="`hit` or `miss`; null where no cache was asked.")
    failure: str | None = Field(description="The exception's type; null where it did not fail.")
    cudagraph_skip: str | None = Field(
        description="Why CUDA graphs were left out of it, in PyTorch's words; null where they were "
        "not, or this torch does not say."
    )


class Underway(BaseModel):
    """What the activity in progress compiles."""

    kind: str | None = Field(description="See `last`; null where it is not known yet.")
    called: str | None = Field(
        description="It as sentences call it, `forward (model.py:31)` or `the model`."
    )
    name: str | None = Field(description="The function, as far as it is known.")
    file: str | None = Field(description="The base name of the file that it is in.")
    line: int | None = Field(description="The line on which it begins.")
    backward: bool = Field(description="It is that function's backward.")
    reason: str | None = Field(description="Why it is compiled again, in PyTorch's words.")
    plain: str | None = Field(description="The same in plain words; null where nobody knows them.")
    category: str | None = Field(description="What that reason is about, of a closed list.")
    advice: str | None = Field(description="What to do about it; null where nothing is known.")


class Counted(BaseModel):
    """How far what the compiler does at the moment is."""

    of: str = Field(description="What is counted: `kernels` or `choices` of an autotuning.")
    done: int = Field(description="How many are done.")
    total: int = Field(description="Of how many.")


class Estimate(BaseModel):
    """How long what compiles may take yet, by what the same took before (`docs/estimates.md`)."""

    of: str = Field(
        description="`warmup`: all of a first one; `function`: the recompile in progress."
    )
    so_far_seconds: Seconds = Field(description="That it has taken.")
    last_seconds: Seconds = Field(description="That it took last time, by the same clock.")
    left_seconds: Seconds | None = Field(
        description="Probably; null where it takes longer than any before."
    )
    low: Seconds | None = Field(description="The least by several precedents; null by one.")
    high: Seconds | None = Field(description="The most, likewise.")
    phases: dict[str, float] = Field(description="The rest by phase, as it was shared out then.")
    precedents: int = Field(description="How many are known.")
    of_rank: bool = Field(description="They are other ranks of this run, and no earlier runs.")


class Kernel(BaseModel):
    """One that took long to compile."""

    name: str = Field(description="As Inductor called it.")
    seconds: Seconds = Field(description="How long.")


class Function(BaseModel):
    """What all compilations of one function took, its backwards among them."""

    called: str | None = Field(
        description="It as sentences call it, `forward (model.py:31)` or `the model`."
    )
    name: str | None = Field(description="Null for what belongs to no function that is known.")
    file: str | None = Field(description="The base name of the file that it is in.")
    line: int | None = Field(description="The line on which it begins.")
    others: int = Field(description="Of a sum over the cheapest: of how many; 0 of a function.")
    compilations: int = Field(description="How often it was compiled, forward and backward.")
    failures: int = Field(description="How many of them failed.")
    seconds: Seconds = Field(description="How long they took together.")
    phase_seconds: dict[str, float] = Field(description="The same by phase. Exclusive.")
    ops: int | None = Field(description="Operators in its graph, the last time.")
    cache_hits: int = Field(description="Compilations that found themselves in a cache.")
    cache_misses: int = Field(description="Compilations that did not.")
    guards: int | None = Field(description="Guards of the last one.")
    guard_seconds: Seconds | None = Field(description="How long one look at them takes.")
    kernels: int | None = Field(description="Kernels that were compiled; null where none is told.")
    slowest_kernels: list[Kernel] = Field(description="Those that took longest.")
    allocated_bytes: int | None = Field(
        description="Of CUDA's allocator, when the last one had ended; null without CUDA."
    )
    reserved_bytes: int | None = Field(description="Likewise.")


class Break(BaseModel):
    """A reason for which Dynamo broke graphs."""

    reason: str = Field(description="In PyTorch's words, without what may be the user's.")
    count: int = Field(description="How often, when it was first told.")


class Varying(BaseModel):
    """A dimension, or a number, for which a function was compiled again."""

    tensor: str = Field(description="The argument's name.")
    dim: int | None = Field(description="Which of its dimensions; null: it is a number itself.")
    values: list[int] = Field(description="The sizes that were seen, in order.")
    complete: bool = Field(description="Whether all of them were kept.")
    smallest: int | None = Field(description="The smallest of all.")
    largest: int | None = Field(description="The largest of all.")
    count: int = Field(description="Recompiles for it.")
    seconds: Seconds | None = Field(
        description="They took together, with their backwards; null where PyTorch is silent."
    )
    step_seconds_before: Seconds | None = Field(
        description="Mean clean step before it first changed; null where too few are known."
    )
    step_seconds_since: Seconds | None = Field(
        description="Mean clean step since, with whatever size; null where too few are known."
    )
    words: str | None = Field(description="The remedy; null where it has not kept changing.")
    name: str | None = Field(description="The function.")
    file: str | None = Field(description="The base name of the file that it is in.")
    line: int | None = Field(description="The line on which it begins.")


class Compile(BaseModel):
    """What the compiler did and does. Counts are null where this torch keeps none."""

    phase: str | None = Field(description="Phase of the activity in progress; null where none is.")
    seconds: Seconds = Field(description="Compile time, the activity in progress included.")
    limit_seconds: Seconds | None = Field(
        description="How long one activity may take before `long_compile` holds; null: no limit."
    )
    idle_seconds: Seconds | None = Field(
        description="For how long nothing of the rank has been busy while it compiles: process, "
        "compilers, workers, GPUs; null where it does not, or nobody can tell."
    )
    gpu_seconds: Seconds | None = Field(
        description="The same times the rank's GPUs; null where it told of none."
    )
    phase_seconds: dict[str, float] = Field(
        description="Compile time by phase, those that took any. Exclusive: they add up."
    )
    compilations: int | None = Field(description="Graphs compiled, forward and backward.")
    graphs: int | None = Field(description="Graphs captured by Dynamo.")
    graphs_before: int | None = Field(
        description="Graphs that it had captured before the agent attached."
    )
    recompiles: int | None = Field(description="Compilations of what had been compiled before.")
    recompiles_after_warm: int | None = Field(description="Those of a rank that had been warm.")
    graph_breaks: int | None = Field(description="Graph breaks counted by Dynamo.")
    cache_hits: int | None = Field(description="Hits of Inductor's cache of whole graphs.")
    cache_misses: int | None = Field(description="Misses of Inductor's cache of whole graphs.")
    caches: dict[str, CacheUse] | None = Field(description="Hits and misses of each cache.")
    failures: int | None = Field(description="Compilations that failed.")
    fallbacks: int | None = Field(
        description="Frames that hit the recompile limit and run eagerly from then on."
    )
    wrappers: int | None = Field(
        description="Functions and modules that the program handed to `torch.compile`."
    )
    disabled: str | None = Field(
        description="By what compilation is turned off: `environment` (TORCHDYNAMO_DISABLE), "
        "`stance` or `config`; null where it is not."
    )
    cudagraph_skips: int | None = Field(
        description="How often CUDA graphs were asked for and left out."
    )
    functions: list[Function] | None = Field(
        description="What each function cost: the 10 dearest. Null where only series are known."
    )
    progress: Counted | None = Field(
        description="How far the activity in progress is; null where PyTorch counts nothing."
    )
    estimate: Estimate | None = Field(
        description="How long it may take yet; null where nothing like it is known."
    )
    underway: Underway | None = Field(
        description="What is compiled now; null where nothing is, or nothing of it is known."
    )
    last: list[PastCompilation] = Field(description="The last five compilations, newest last.")
    breaks: list[Break] = Field(description="Why Dynamo broke graphs, in the order of time.")
    varying: list[Varying] = Field(
        description="Dimensions and numbers that changed, at most 20, in the order of time."
    )


class Batches(BaseModel):
    """What the DataLoaders handed out in the training process."""

    count: int = Field(description="Batches so far.")
    wait_seconds: Seconds | None = Field(
        description="Time that the loop waited for them; null until there was one."
    )


class LongStep(BaseModel):
    """A step that came far later than usual, though nothing compiled in it."""

    step: int = Field(description="Which one, from 1.")
    seconds: Seconds = Field(description="Since the one before, pauses included.")
    usual_seconds: Seconds = Field(description="Median of the clean steps, then.")
    checkpoint_seconds: Seconds = Field(description="Of it, saving.")
    evaluation_seconds: Seconds = Field(description="Of it, evaluating, where that was told.")
    data_seconds: Seconds | None = Field(
        description="Of it, waiting for batches of DataLoaders; null where none gave one in it."
    )
    batches: int | None = Field(description="Batches that were handed out in it; null: none.")
    evaluation: bool = Field(
        description="It was told of, or far more batches were handed out than in a usual step."
    )
    words: str = Field(description="The same in one clause.")


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


class End(BaseModel):
    """How a rank ended."""

    how: str = Field(description="`finished`, `failed`, `interrupted`, `detached` or `lost`.")
    exit_code: int | None = Field(description="0 to 255; null where nobody could know.")
    exception: str | None = Field(description="Type of the uncaught exception, if one ended it.")
    out_of_memory: bool | None = Field(
        description="The kernel killed it for want of memory; null where nobody can tell."
    )
    ended_together: bool | None = Field(
        description="All ranks of the run ended within seconds; null of one rank, or not known."
    )


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
    median: Seconds | None = Field(description="Null before the first clean step.")
    p99: Seconds | None = Field(description="99th percentile; null before the first clean step.")
    typical: Seconds | None = Field(
        description="The real speed: the clean steps' mean where they are alike, else their "
        "median; null before the first of them."
    )
    median_low: Seconds | None = Field(
        description="The median is above this, at 97.5 %, as far as bins tell: each is 5 % wide, "
        "and lengths are taken to lie evenly in it. `typical` is exact where they are alike."
    )
    median_high: Seconds | None = Field(description="Likewise below this.")
    clean_count: int | None = Field(description="How many steps were clean.")
    clean_seconds: Seconds | None = Field(description="What the clean steps took together.")


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
    compile: Compile
    warmup: Warmup
    step_seconds: StepSeconds
    long_steps: list[LongStep] = Field(
        description="Steps that came at least four times as late as usual, and a second, without "
        "compiling: the last ones and the longest, oldest first."
    )
    batches: Batches | None = Field(description="Null where this torch, or a series, tells none.")
    pauses: Pauses
    cost: Cost
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
    torch_memory_bytes: TorchMemory | None = Field(
        description="Null until CUDA is up, and where the allocator keeps no statistics."
    )
