"""Schema of a rank's compiler in ``/status``: units, functions, compilations."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from warmwatch_monitor.figures.compile import (
    Caller,
    CompileLimit,
    Counted,
    Estimate,
    FunctionTotals,
    GpuSeconds,
    Located,
    Phase,
    PublishedCompile,
)
from warmwatch_monitor.figures.declared import Epoch, Seconds

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
