"""Schema of a rank's compiler in ``/status``: units, functions, compilations."""

from typing import Annotated

from msgspec import Meta, Struct

# A number beyond this is damaged: it counts nothing, and no calendar has a day for it.
_LARGEST = 2.0**64


def _unit(name: str) -> Meta:
    return Meta(gt=-_LARGEST, lt=_LARGEST, extra_json_schema={"x-unit": name} if name else None)


Number = Annotated[float, _unit("")]
Seconds = Annotated[float, _unit("s")]
Epoch = Annotated[float, _unit("s since the epoch")]
Joules = Annotated[float, _unit("J")]


class Kernel(Struct, frozen=True, kw_only=True):
    """One that took long to compile."""

    name: Annotated[str, Meta(description="As Inductor called it.")]
    seconds: Annotated[Seconds, Meta(description="How long.")]


class Function(Struct, frozen=True, kw_only=True):
    """What all compilations of one function took, its backwards among them."""

    called: Annotated[
        str | None,
        Meta(description="It as sentences call it, `forward (model.py:31)` or `the model`."),
    ] = None
    name: Annotated[
        str | None, Meta(description="Null for what belongs to no function that is known.")
    ] = None
    file: Annotated[str | None, Meta(description="The base name of the file that it is in.")] = None
    line: Annotated[int | None, Meta(description="The line on which it begins.")] = None
    caller: Annotated[str | None, Meta(description="Of its last compilation; see `last`.")] = None
    others: Annotated[
        int, Meta(description="Of a sum over the cheapest: of how many; 0 of a function.")
    ]
    compilations: Annotated[
        int, Meta(description="How often it was compiled, forward and backward.")
    ]
    failures: Annotated[int, Meta(description="How many of them failed.")]
    seconds: Annotated[Seconds, Meta(description="How long they took together.")]
    phase_seconds: Annotated[dict[str, Seconds], Meta(description="The same by phase. Exclusive.")]
    ops: Annotated[int | None, Meta(description="Operators in its graph, the last time.")] = None
    cache_hits: Annotated[int, Meta(description="Compilations that found themselves in a cache.")]
    cache_misses: Annotated[int, Meta(description="Compilations that did not.")]
    guards: Annotated[int | None, Meta(description="Guards of the last one.")] = None
    guard_seconds: Annotated[
        Seconds | None, Meta(description="How long one look at them takes.")
    ] = None
    kernels: Annotated[
        int | None, Meta(description="Kernels that were compiled; null where none is told.")
    ] = None
    slowest_kernels: Annotated[list[Kernel], Meta(description="Those that took longest.")]
    allocated_bytes: Annotated[
        int | None,
        Meta(description="Of CUDA's allocator, when the last one had ended; null without CUDA."),
    ] = None
    reserved_bytes: Annotated[int | None, Meta(description="Likewise.")] = None


class PastCompilation(Struct, frozen=True, kw_only=True):
    """One compilation that the rank's journal tells of."""

    id: Annotated[
        str | None,
        Meta(description="PyTorch's compile id, such as `0/1`: null where it gave none."),
    ] = None
    kind: Annotated[
        str,
        Meta(
            description="`forward`, `backward`, `autotune`, `cudagraph` or `other`, of PyTorch; "
            "`triton`, `cpp_extension` or `custom`, of a compiler beside it."
        ),
    ]
    seconds: Annotated[
        Seconds | None, Meta(description="How long it took; null where PyTorch is silent.")
    ] = None
    total_seconds: Annotated[
        Seconds | None,
        Meta(
            description="With its backward and what was tuned or recorded at its first run: what a "
            "recompile cost so far. Null for what another brought, and in an event."
        ),
    ] = None
    reason: Annotated[
        str | None,
        Meta(
            description="Why it was compiled again, in PyTorch's words; null for a first "
            "compilation."
        ),
    ] = None
    plain: Annotated[
        str | None, Meta(description="The same in plain words; null where nobody knows them.")
    ] = None
    category: Annotated[
        str | None,
        Meta(
            description="What that reason is about, of a closed list; null for a first compilation."
        ),
    ] = None
    advice: Annotated[
        str | None,
        Meta(
            description="What to do about it; null where nothing is known, and in the first "
            "warm-up, which it is a part of."
        ),
    ] = None
    called: Annotated[
        str | None,
        Meta(description="It as sentences call it, `forward (model.py:31)` or `the model`."),
    ] = None
    name: Annotated[str | None, Meta(description="The function that was compiled.")] = None
    file: Annotated[str | None, Meta(description="The base name of the file that it is in.")] = None
    line: Annotated[int | None, Meta(description="The line on which it begins.")] = None
    caller: Annotated[
        str | None,
        Meta(
            description="Of library code the line of the user's that called it, `train.py:31`; "
            "empty where only library code is involved; null of the user's own functions."
        ),
    ] = None
    cache: Annotated[
        str | None, Meta(description="`hit` or `miss`; null where no cache was asked.")
    ] = None
    failure: Annotated[
        str | None, Meta(description="The exception's type; null where it did not fail.")
    ] = None
    failure_reason: Annotated[
        str | None,
        Meta(
            description="Why it failed, in PyTorch's words; null where they may be the program's."
        ),
    ] = None
    instance: Annotated[
        int | None,
        Meta(
            description="Which module of its class this is, where another was compiled with the "
            "same code before: a first compilation and no recompile. Null elsewhere."
        ),
    ] = None
    cudagraph_skip: Annotated[
        str | None,
        Meta(
            description="Why CUDA graphs were left out of it, in PyTorch's words; null where they "
            "were not, or this torch does not say."
        ),
    ] = None


class Underway(Struct, frozen=True, kw_only=True):
    """What the activity in progress compiles."""

    kind: Annotated[str | None, Meta(description="See `last`; null where it is not known yet.")] = (
        None
    )
    called: Annotated[
        str | None,
        Meta(description="It as sentences call it, `forward (model.py:31)` or `the model`."),
    ] = None
    name: Annotated[str | None, Meta(description="The function, as far as it is known.")] = None
    file: Annotated[str | None, Meta(description="The base name of the file that it is in.")] = None
    line: Annotated[int | None, Meta(description="The line on which it begins.")] = None
    caller: Annotated[str | None, Meta(description="See `last`.")] = None
    backward: Annotated[bool, Meta(description="It is that function's backward.")]
    reason: Annotated[
        str | None, Meta(description="Why it is compiled again, in PyTorch's words.")
    ] = None
    plain: Annotated[
        str | None, Meta(description="The same in plain words; null where nobody knows them.")
    ] = None
    category: Annotated[
        str | None, Meta(description="What that reason is about, of a closed list.")
    ] = None
    advice: Annotated[
        str | None,
        Meta(
            description="What to do about it; null where nothing is known, and in the first "
            "warm-up, which it is a part of."
        ),
    ] = None


class CacheUse(Struct, frozen=True, kw_only=True):
    """How often a compile cache had what was asked for."""

    hits: Annotated[int, Meta(description="Found in the cache.")]
    misses: Annotated[int, Meta(description="Not found, so compiled.")]


class Counted(Struct, frozen=True, kw_only=True):
    """How far what the compiler does at the moment is."""

    of: Annotated[
        str, Meta(description="What is counted: `kernels` or `choices` of an autotuning.")
    ]
    done: Annotated[int, Meta(description="How many are done.")]
    total: Annotated[int, Meta(description="Of how many.")]


class Estimate(Struct, frozen=True, kw_only=True):
    """How long what compiles may take yet, by what the same took before.

    `docs/reference/estimates.md` has the method.
    """

    of: Annotated[
        str,
        Meta(description="`warmup`: all of a first one; `function`: the recompile in progress."),
    ]
    so_far_seconds: Annotated[Seconds, Meta(description="That it has taken.")]
    last_seconds: Annotated[Seconds, Meta(description="That it took last time, by the same clock.")]
    left_seconds: Annotated[
        Seconds | None, Meta(description="Probably; null where it takes longer than any before.")
    ] = None
    low: Annotated[
        Seconds | None, Meta(description="The least by several precedents; null by one.")
    ] = None
    high: Annotated[Seconds | None, Meta(description="The most, likewise.")] = None
    phases: Annotated[
        dict[str, Seconds], Meta(description="The rest by phase, as it was shared out then.")
    ]
    precedents: Annotated[int, Meta(description="How many are known.")]
    of_rank: Annotated[
        bool, Meta(description="They are other ranks of this run, and no earlier runs.")
    ]


class Break(Struct, frozen=True, kw_only=True):
    """A reason for which Dynamo broke graphs."""

    reason: Annotated[str, Meta(description="In PyTorch's words, without what may be the user's.")]
    count: Annotated[int, Meta(description="How often, when it was first told.")]
    called: Annotated[
        str | None, Meta(description="Where, of several places the last; null: not known.")
    ] = None


class Varying(Struct, frozen=True, kw_only=True):
    """A dimension, or a number, for which a function was compiled again."""

    tensor: Annotated[str, Meta(description="The argument's name.")]
    dim: Annotated[
        int | None, Meta(description="Which of its dimensions; null: it is a number itself.")
    ] = None
    values: Annotated[list[int], Meta(description="The sizes that were seen, in order.")]
    complete: Annotated[bool, Meta(description="Whether all of them were kept.")]
    smallest: Annotated[int | None, Meta(description="The smallest of all.")] = None
    largest: Annotated[int | None, Meta(description="The largest of all.")] = None
    count: Annotated[int, Meta(description="Recompiles for it.")]
    seconds: Annotated[
        Seconds | None,
        Meta(description="They took together, with their backwards; null where PyTorch is silent."),
    ] = None
    step_seconds_before: Annotated[
        Seconds | None,
        Meta(description="Mean clean step before it first changed; null where too few are known."),
    ] = None
    step_seconds_since: Annotated[
        Seconds | None,
        Meta(
            description="Mean clean step since, with whatever size; null where too few are known."
        ),
    ] = None
    words: Annotated[
        str | None, Meta(description="The remedy; null where it has not kept changing.")
    ] = None
    name: Annotated[str | None, Meta(description="The function.")] = None
    file: Annotated[str | None, Meta(description="The base name of the file that it is in.")] = None
    line: Annotated[int | None, Meta(description="The line on which it begins.")] = None


class Compile(Struct, frozen=True, kw_only=True):
    """What the compiler did and does. Counts are null where this torch keeps none."""

    phase: Annotated[
        str | None, Meta(description="Phase of the activity in progress; null where none is.")
    ] = None
    seconds: Annotated[
        Seconds, Meta(description="Compile time, the activity in progress included.")
    ]
    limit_seconds: Annotated[
        Seconds | None,
        Meta(
            description="How long one activity may take before `long_compile` holds; null: no "
            "limit."
        ),
    ] = None
    idle_seconds: Annotated[
        Seconds | None,
        Meta(
            description="For how long nothing of the rank has been busy while it compiles: "
            "process, compilers, workers, GPUs; null where it does not, or nobody can tell."
        ),
    ] = None
    gpu_seconds: Annotated[
        Seconds | None,
        Meta(description="The same times the rank's GPUs; null where it told of none."),
    ] = None
    phase_seconds: Annotated[
        dict[str, Seconds],
        Meta(description="Compile time by phase, those that took any. Exclusive: they add up."),
    ]
    compilations: Annotated[
        int | None, Meta(description="Graphs compiled, forward and backward.")
    ] = None
    graphs: Annotated[int | None, Meta(description="Graphs captured by Dynamo.")] = None
    graphs_before: Annotated[
        int | None, Meta(description="Graphs that it had captured before the agent attached.")
    ] = None
    precompiled: Annotated[
        list[str] | None,
        Meta(
            description="What runs that was compiled ahead of time: `aoti`, `precompile`, `jit`, "
            "`tensorrt`, `cudagraph`. Such a rank is never `eager`."
        ),
    ] = None
    recompiles: Annotated[
        int | None, Meta(description="Compilations of what had been compiled before.")
    ] = None
    new_instances: Annotated[
        int | None,
        Meta(
            description="First compilations of a module whose class's code had been compiled for "
            "another module: no recompiles."
        ),
    ] = None
    recompiles_after_warm: Annotated[
        int | None, Meta(description="Those of a rank that had been warm.")
    ] = None
    graph_breaks: Annotated[int | None, Meta(description="Graph breaks counted by Dynamo.")] = None
    cache_hits: Annotated[
        int | None, Meta(description="Hits of Inductor's cache of whole graphs.")
    ] = None
    cache_misses: Annotated[
        int | None, Meta(description="Misses of Inductor's cache of whole graphs.")
    ] = None
    caches: Annotated[
        dict[str, CacheUse] | None, Meta(description="Hits and misses of each cache.")
    ] = None
    failures: Annotated[int | None, Meta(description="Compilations that failed.")] = None
    fallbacks: Annotated[
        int | None,
        Meta(
            description="Frames that hit the recompile limit: what was compiled still runs, new "
            "inputs run eagerly."
        ),
    ] = None
    wrappers: Annotated[
        int | None,
        Meta(description="Functions and modules that the program handed to `torch.compile`."),
    ] = None
    disabled: Annotated[
        str | None,
        Meta(
            description="By what compilation is turned off: `environment` (TORCHDYNAMO_DISABLE), "
            "`stance` (`force_eager`) or `config`; for new inputs alone `eager_on_recompile` or "
            "`fail_on_recompile`; null where it is not."
        ),
    ] = None
    disabled_since_step: Annotated[
        int | None, Meta(description="The last step before that; null where it is not turned off.")
    ] = None
    eager_calls: Annotated[
        int | None,
        Meta(description="Calls of compiled functions that the stance `force_eager` ran eagerly."),
    ] = None
    refused_calls: Annotated[
        int | None, Meta(description="Calls that the stance `fail_on_recompile` refused.")
    ] = None
    cudagraph_skips: Annotated[
        int | None, Meta(description="How often CUDA graphs were asked for and left out.")
    ] = None
    background_since: Annotated[
        Epoch | None,
        Meta(
            description="When the oldest compilation in progress on a thread that the steps do not "
            "wait for began, in seconds since the epoch; null where there is none."
        ),
    ] = None
    background_seconds: Annotated[
        Seconds,
        Meta(description="Time of all compilations in the background, added up over threads."),
    ]
    functions: Annotated[
        list[Function] | None,
        Meta(
            description="What each function cost: the 10 dearest. Null where only series are known."
        ),
    ] = None
    progress: Annotated[
        Counted | None,
        Meta(description="How far the activity in progress is; null where PyTorch counts nothing."),
    ] = None
    estimate: Annotated[
        Estimate | None,
        Meta(description="How long it may take yet; null where nothing like it is known."),
    ] = None
    underway: Annotated[
        Underway | None,
        Meta(description="What is compiled now; null where nothing is, or nothing of it is known."),
    ] = None
    last: Annotated[
        list[PastCompilation], Meta(description="The last five compilations, newest last.")
    ] = []
    breaks: Annotated[
        list[Break], Meta(description="Why Dynamo broke graphs, in the order of time.")
    ] = []
    varying: Annotated[
        list[Varying],
        Meta(description="Dimensions and numbers that changed, at most 20, in the order of time."),
    ] = []
