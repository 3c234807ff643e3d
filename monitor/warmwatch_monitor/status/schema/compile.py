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


# descriptions that several types share
Label = Annotated[
    str | None,
    Meta(description="The function as sentences name it: `forward (model.py:31)`, or `the model`."),
]
FileName = Annotated[str | None, Meta(description="Base name of its file.")]
FirstLine = Annotated[int | None, Meta(description="Its first line.")]
PlainReason = Annotated[
    str | None, Meta(description="The reason in plain words; null if there are none for it.")
]
Remedy = Annotated[
    str | None,
    Meta(description="How to avoid it; null if unknown, and in the first warm-up."),
]


class Kernel(Struct, frozen=True, kw_only=True):
    """A kernel that took long to compile."""

    name: Annotated[str, Meta(description="Its name, as Inductor gave it.")]
    seconds: Annotated[Seconds, Meta(description="How long it compiled.")]


class Function(Struct, frozen=True, kw_only=True):
    """Cost of all compilations of one function, backwards included."""

    called: Label = None
    name: Annotated[
        str | None, Meta(description="Name of the function; null if it is unknown.")
    ] = None
    file: FileName = None
    line: FirstLine = None
    caller: Annotated[str | None, Meta(description="Of its last compilation; see `last`.")] = None
    others: Annotated[
        int,
        Meta(
            description="Number of functions in this entry, if it is the sum of the "
            "cheapest; 0 if it is one function."
        ),
    ]
    compilations: Annotated[int, Meta(description="Compilations, forward and backward.")]
    failures: Annotated[int, Meta(description="Compilations that failed.")]
    seconds: Annotated[Seconds, Meta(description="Compile time of all its compilations.")]
    phase_seconds: Annotated[
        dict[str, Seconds], Meta(description="Compile time by phase. Phases do not overlap.")
    ]
    ops: Annotated[int | None, Meta(description="Operators in its last graph.")] = None
    cache_hits: Annotated[int, Meta(description="Compilations that a cache had.")]
    cache_misses: Annotated[int, Meta(description="Compilations that no cache had.")]
    guards: Annotated[int | None, Meta(description="Guards of its last compilation.")] = None
    guard_seconds: Annotated[
        Seconds | None, Meta(description="Time of one check of these guards.")
    ] = None
    kernels: Annotated[
        int | None, Meta(description="Kernels compiled; null if PyTorch reports none.")
    ] = None
    slowest_kernels: Annotated[list[Kernel], Meta(description="The kernels that took longest.")]
    allocated_bytes: Annotated[
        int | None,
        Meta(
            description="Bytes that CUDA's allocator had allocated after its last compilation; "
            "null without CUDA."
        ),
    ] = None
    reserved_bytes: Annotated[
        int | None,
        Meta(description="Bytes that CUDA's allocator had reserved then; null without CUDA."),
    ] = None


class PastCompilation(Struct, frozen=True, kw_only=True):
    """A compilation recorded in the rank's journal."""

    id: Annotated[
        str | None,
        Meta(description="PyTorch's compile id, such as `0/1`; null if it has none."),
    ] = None
    kind: Annotated[
        str,
        Meta(
            description="Of PyTorch: `forward`, `backward`, `autotune`, `cudagraph` or `other`. "
            "Of another compiler: `triton`, `cpp_extension` or `custom`."
        ),
    ]
    seconds: Annotated[
        Seconds | None, Meta(description="How long it took; null if PyTorch does not report it.")
    ] = None
    total_seconds: Annotated[
        Seconds | None,
        Meta(
            description="What it cost so far, with its backward, autotuning and CUDA graph "
            "recording. Null for these parts themselves, and in an event."
        ),
    ] = None
    reason: Annotated[
        str | None,
        Meta(
            description="Why it was recompiled, as PyTorch reports it; null for a first "
            "compilation."
        ),
    ] = None
    plain: PlainReason = None
    category: Annotated[
        str | None,
        Meta(
            description="Category of the reason, from a closed list; null for a first compilation."
        ),
    ] = None
    advice: Remedy = None
    called: Label = None
    name: Annotated[str | None, Meta(description="Name of the function.")] = None
    file: FileName = None
    line: FirstLine = None
    caller: Annotated[
        str | None,
        Meta(
            description="For library code, the user's line that called it, such as `train.py:31`; "
            "empty if only library code is involved. Null for the user's own functions."
        ),
    ] = None
    cache: Annotated[
        str | None, Meta(description="`hit` or `miss`; null if no cache was used.")
    ] = None
    failure: Annotated[
        str | None, Meta(description="Type of the exception if it failed, else null.")
    ] = None
    failure_reason: Annotated[
        str | None,
        Meta(
            description="Why it failed, as PyTorch reports it; null if the text may contain "
            "values of the program."
        ),
    ] = None
    instance: Annotated[
        int | None,
        Meta(
            description="Number of the module, if another one of its class was compiled before "
            "with the same code: this is a first compilation, not a recompile. Null otherwise."
        ),
    ] = None
    cudagraph_skip: Annotated[
        str | None,
        Meta(
            description="Why it has no CUDA graph, as PyTorch reports it; null if it has one, or "
            "if this PyTorch does not report it."
        ),
    ] = None


class Underway(Struct, frozen=True, kw_only=True):
    """What the compile activity in progress compiles."""

    kind: Annotated[
        str | None, Meta(description="As in `last`; null as long as it is unknown.")
    ] = None
    called: Label = None
    name: Annotated[
        str | None, Meta(description="Name of the function; null as long as it is unknown.")
    ] = None
    file: FileName = None
    line: FirstLine = None
    caller: Annotated[str | None, Meta(description="As in `last`.")] = None
    backward: Annotated[bool, Meta(description="Whether it is the function's backward.")]
    reason: Annotated[
        str | None,
        Meta(
            description="Why it is recompiled, as PyTorch reports it; null for a first compilation."
        ),
    ] = None
    plain: PlainReason = None
    category: Annotated[
        str | None, Meta(description="Category of the reason, from a closed list.")
    ] = None
    advice: Remedy = None


class CacheUse(Struct, frozen=True, kw_only=True):
    """Lookups in a compile cache."""

    hits: Annotated[int, Meta(description="Lookups that found an entry.")]
    misses: Annotated[int, Meta(description="Lookups that found none.")]


class Counted(Struct, frozen=True, kw_only=True):
    """Progress of the compile activity."""

    of: Annotated[
        str, Meta(description="What is counted: `kernels`, or `choices` of an autotuning.")
    ]
    done: Annotated[int, Meta(description="Number of these that are done.")]
    total: Annotated[int, Meta(description="Number of these in all.")]


class Estimate(Struct, frozen=True, kw_only=True):
    """Estimated time left of a compilation, from what the same took before.

    `docs/reference/estimates.md` has the method.
    """

    of: Annotated[
        str,
        Meta(
            description="`warmup`: the whole first warm-up; `function`: the recompile in progress."
        ),
    ]
    so_far_seconds: Annotated[Seconds, Meta(description="Time that it has taken so far.")]
    last_seconds: Annotated[Seconds, Meta(description="Time that it took last time.")]
    left_seconds: Annotated[
        Seconds | None,
        Meta(description="Estimated time left; null if it already takes longer than ever before."),
    ] = None
    low: Annotated[
        Seconds | None,
        Meta(description="Shortest time left, if there are several precedents; null with one."),
    ] = None
    high: Annotated[
        Seconds | None,
        Meta(description="Longest time left, if there are several precedents; null with one."),
    ] = None
    phases: Annotated[
        dict[str, Seconds], Meta(description="Estimated time left by phase, divided as last time.")
    ]
    precedents: Annotated[
        int, Meta(description="Number of earlier runs, or ranks, that the estimate rests on.")
    ]
    of_rank: Annotated[
        bool,
        Meta(description="Whether the precedents are other ranks of this run, not earlier runs."),
    ]


class Break(Struct, frozen=True, kw_only=True):
    """A reason for graph breaks."""

    reason: Annotated[str, Meta(description="As PyTorch reports it, redacted.")]
    count: Annotated[int, Meta(description="How often it had occurred when it was recorded.")]
    called: Annotated[
        str | None, Meta(description="Where, of several places the last; null: not known.")
    ] = None


class Varying(Struct, frozen=True, kw_only=True):
    """A dimension, or a number, that caused recompiles of a function."""

    tensor: Annotated[str, Meta(description="Name of the argument.")]
    dim: Annotated[
        int | None, Meta(description="Index of the dimension; null if the argument is a number.")
    ] = None
    values: Annotated[list[int], Meta(description="Its sizes, in the order of time.")]
    complete: Annotated[bool, Meta(description="Whether `values` has all of them.")]
    smallest: Annotated[int | None, Meta(description="The smallest size.")] = None
    largest: Annotated[int | None, Meta(description="The largest size.")] = None
    count: Annotated[int, Meta(description="Recompiles that it caused.")]
    seconds: Annotated[
        Seconds | None,
        Meta(
            description="Time of these recompiles, with their backwards; null if PyTorch does "
            "not report it."
        ),
    ] = None
    step_seconds_before: Annotated[
        Seconds | None,
        Meta(description="Mean clean step before it first changed; null if too few are known."),
    ] = None
    step_seconds_since: Annotated[
        Seconds | None,
        Meta(description="Mean clean step since then, of all sizes; null if too few are known."),
    ] = None
    words: Annotated[
        str | None,
        Meta(description="How to avoid the recompiles; null if it has not changed repeatedly."),
    ] = None
    name: Annotated[str | None, Meta(description="Name of the function.")] = None
    file: FileName = None
    line: FirstLine = None


class Compile(Struct, frozen=True, kw_only=True):
    """What the compiler did and does. Counts are null if this PyTorch does not keep them."""

    phase: Annotated[
        str | None,
        Meta(description="Phase of the compile activity in progress; null if there is none."),
    ] = None
    seconds: Annotated[
        Seconds, Meta(description="Compile time, the activity in progress included.")
    ]
    limit_seconds: Annotated[
        Seconds | None,
        Meta(
            description="How long an activity may take before the condition `long_compile` holds; "
            "null: no limit."
        ),
    ] = None
    idle_seconds: Annotated[
        Seconds | None,
        Meta(
            description="How long process, compilers, workers and GPUs of the rank have all been "
            "idle while it compiles; null if it does not compile, or if that is unknown."
        ),
    ] = None
    gpu_seconds: Annotated[
        Seconds | None,
        Meta(description="Compile time multiplied by the rank's GPUs; null if it reports none."),
    ] = None
    phase_seconds: Annotated[
        dict[str, Seconds],
        Meta(
            description="Compile time by phase, without phases that took none. They add up to "
            "`seconds`."
        ),
    ]
    compilations: Annotated[
        int | None, Meta(description="Graphs compiled, forward and backward.")
    ] = None
    graphs: Annotated[int | None, Meta(description="Graphs captured by Dynamo.")] = None
    graphs_before: Annotated[
        int | None, Meta(description="Graphs captured before the agent attached.")
    ] = None
    precompiled: Annotated[
        list[str] | None,
        Meta(
            description="Which code compiled ahead of time runs: `aoti`, `precompile`, `jit`, "
            "`tensorrt`, `cudagraph`. Such a rank is never `eager`."
        ),
    ] = None
    recompiles: Annotated[
        int | None, Meta(description="Compilations of code that had been compiled before.")
    ] = None
    new_instances: Annotated[
        int | None,
        Meta(
            description="First compilations of a module after another module of its class: these "
            "are not recompiles."
        ),
    ] = None
    recompiles_after_warm: Annotated[
        int | None, Meta(description="Recompiles after the rank had been warm.")
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
            description="Frames that hit the recompile limit: compiled code still runs, new "
            "inputs run eagerly."
        ),
    ] = None
    wrappers: Annotated[
        int | None,
        Meta(description="Functions and modules that the program passed to `torch.compile`."),
    ] = None
    disabled: Annotated[
        str | None,
        Meta(
            description="What turned compilation off: `environment` (TORCHDYNAMO_DISABLE), "
            "`stance` (`force_eager`) or `config`; for new inputs only, `eager_on_recompile` or "
            "`fail_on_recompile`. Null if it is on."
        ),
    ] = None
    disabled_since_step: Annotated[
        int | None,
        Meta(description="Last step before compilation was turned off; null if it is on."),
    ] = None
    eager_calls: Annotated[
        int | None,
        Meta(description="Calls of compiled functions that the stance `force_eager` ran eagerly."),
    ] = None
    refused_calls: Annotated[
        int | None, Meta(description="Calls that the stance `fail_on_recompile` refused.")
    ] = None
    cudagraph_skips: Annotated[
        int | None, Meta(description="How often PyTorch skipped requested CUDA graphs.")
    ] = None
    background_since: Annotated[
        Epoch | None,
        Meta(
            description="When the oldest background compilation in progress began; null if there "
            "is none. Steps do not wait for it."
        ),
    ] = None
    background_seconds: Annotated[
        Seconds,
        Meta(description="Time of all background compilations, added up over threads."),
    ]
    functions: Annotated[
        list[Function] | None,
        Meta(
            description="The 10 most expensive functions. Null if the answer comes from Prometheus."
        ),
    ] = None
    progress: Annotated[
        Counted | None,
        Meta(description="Progress of the activity; null if PyTorch counts nothing."),
    ] = None
    estimate: Annotated[
        Estimate | None,
        Meta(description="Estimated time left; null without a precedent."),
    ] = None
    underway: Annotated[
        Underway | None,
        Meta(description="What is compiled now; null if nothing is, or if it is unknown."),
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
