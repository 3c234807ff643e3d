"""Schema of a rank's compiler in ``/status``: units, functions, compilations."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

Seconds = Annotated[float, Field(json_schema_extra={"x-unit": "s"})]
Epoch = Annotated[float, Field(json_schema_extra={"x-unit": "s since the epoch"})]
Joules = Annotated[float, Field(json_schema_extra={"x-unit": "J"})]


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
    total_seconds: Seconds | None = Field(
        description="With its backward and what was tuned or recorded at its first run: what a "
        "recompile cost so far. Null for what another brought, and in an event."
    )
    reason: str | None = Field(
        description="Why it was compiled again, in PyTorch's words; null for a first compilation."
    )
    plain: str | None = Field(description="The same in plain words; null where nobody knows them.")
    category: str | None = Field(
        description="What that reason is about, of a closed list; null for a first compilation."
    )
    advice: str | None = Field(
        description="What to do about it; null where nothing is known, and in the first warm-up, "
        "which it is a part of."
    )
    called: str | None = Field(
        description="It as sentences call it, `forward (model.py:31)` or `the model`."
    )
    name: str | None = Field(description="The function that was compiled.")
    file: str | None = Field(description="The base name of the file that it is in.")
    line: int | None = Field(description="The line on which it begins.")
    caller: str | None = Field(
        description="Of library code the line of the user's that called it, `train.py:31`; empty "
        "where only library code is involved; null of the user's own functions."
    )
    cache: str | None = Field(description="`hit` or `miss`; null where no cache was asked.")
    failure: str | None = Field(description="The exception's type; null where it did not fail.")
    failure_reason: str | None = Field(
        description="Why it failed, in PyTorch's words; null where they may be the program's."
    )
    instance: int | None = Field(
        description="Which module of its class this is, where another was compiled with the same "
        "code before: a first compilation and no recompile. Null elsewhere."
    )
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
    caller: str | None = Field(description="See `last`.")
    backward: bool = Field(description="It is that function's backward.")
    reason: str | None = Field(description="Why it is compiled again, in PyTorch's words.")
    plain: str | None = Field(description="The same in plain words; null where nobody knows them.")
    category: str | None = Field(description="What that reason is about, of a closed list.")
    advice: str | None = Field(
        description="What to do about it; null where nothing is known, and in the first warm-up, "
        "which it is a part of."
    )


class CacheUse(BaseModel):
    """How often a compile cache had what was asked for."""

    hits: int = Field(description="Found in the cache.")
    misses: int = Field(description="Not found, so compiled.")


class Counted(BaseModel):
    """How far what the compiler does at the moment is."""

    of: str = Field(description="What is counted: `kernels` or `choices` of an autotuning.")
    done: int = Field(description="How many are done.")
    total: int = Field(description="Of how many.")


class Estimate(BaseModel):
    """How long what compiles may take yet, by what the same took before.

    `docs/reference/estimates.md` has the method.
    """

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
    precompiled: list[str] | None = Field(
        description="What runs that was compiled ahead of time: `aoti`, `precompile`, `jit`, "
        "`tensorrt`, `cudagraph`. Such a rank is never `eager`."
    )
    recompiles: int | None = Field(description="Compilations of what had been compiled before.")
    new_instances: int | None = Field(
        description="First compilations of a module whose class's code had been compiled for "
        "another module: no recompiles."
    )
    recompiles_after_warm: int | None = Field(description="Those of a rank that had been warm.")
    graph_breaks: int | None = Field(description="Graph breaks counted by Dynamo.")
    cache_hits: int | None = Field(description="Hits of Inductor's cache of whole graphs.")
    cache_misses: int | None = Field(description="Misses of Inductor's cache of whole graphs.")
    caches: dict[str, CacheUse] | None = Field(description="Hits and misses of each cache.")
    failures: int | None = Field(description="Compilations that failed.")
    fallbacks: int | None = Field(
        description="Frames that hit the recompile limit: what was compiled still runs, new "
        "inputs run eagerly."
    )
    wrappers: int | None = Field(
        description="Functions and modules that the program handed to `torch.compile`."
    )
    disabled: str | None = Field(
        description="By what compilation is turned off: `environment` (TORCHDYNAMO_DISABLE), "
        "`stance` (`force_eager`) or `config`; for new inputs alone `eager_on_recompile` or "
        "`fail_on_recompile`; null where it is not."
    )
    disabled_since_step: int | None = Field(
        description="The last step before that; null where it is not turned off."
    )
    eager_calls: int | None = Field(
        description="Calls of compiled functions that the stance `force_eager` ran eagerly."
    )
    refused_calls: int | None = Field(
        description="Calls that the stance `fail_on_recompile` refused."
    )
    cudagraph_skips: int | None = Field(
        description="How often CUDA graphs were asked for and left out."
    )
    background_since: float | None = Field(
        description="When the oldest compilation in progress on a thread that the steps do not "
        "wait for began, in seconds since the epoch; null where there is none."
    )
    background_seconds: Seconds = Field(
        description="Time of all compilations in the background, added up over threads."
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
