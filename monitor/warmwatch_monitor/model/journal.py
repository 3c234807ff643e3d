"""The lines of a record's journal, as an agent writes them: one struct for each event.

The structs are what the monitor works with, and msgspec decodes them. A field whose name differs
from the journal's key is renamed in ``_KEYS``. ``sources/records/parsed_journal.py`` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from warmwatch.shared.record import CACHES, PHASES
from warmwatch.shared.values import VERDICTS
from warmwatch_monitor.figures.compile import CompileTarget, Located
from warmwatch_monitor.figures.declared import LARGEST as LARGEST
from warmwatch_monitor.figures.declared import Count
from warmwatch_monitor.figures.rank import Place

Seconds = Annotated[float, Meta(ge=0, le=2.0**62)]  # excludes NaN and infinities

MOST_METHODS = 5  # of a module, as many as an agent writes
MOST_PLACES = 8  # of a reason for graph breaks, as many as an agent writes
MOST_KERNELS = 3  # of a compilation, as many as an agent writes
_KEYS = {
    "at_ns": "t",
    "step": "steps",
    "usual_seconds": "usual",
    "saving_seconds": "saving",
    "evaluating_seconds": "evaluating",
    "between_cells_seconds": "between_cells",
    "data_seconds": "data",
}


class Cost(Struct, frozen=True, kw_only=True):
    """Cost of one compilation, or of all compilations of a function; ``None`` if not reported."""

    # exclusive time of each of ``record.PHASES`` that took any
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    ops: int | None = None  # operators in its graph
    guards: int | None = None
    guard_seconds: float | None = None  # of checking them once
    kernels: int | None = None  # that were compiled
    slowest: tuple[tuple[str, float], ...] = ()  # the slowest of them, with their seconds
    allocated: int | None = None  # bytes of CUDA's allocator at its end, as ``reserved``
    reserved: int | None = None


class TracedPlace(Located, frozen=True, kw_only=True):
    """Where Dynamo broke a graph, or failed."""

    library: bool = False
    """Whether it is not in the user's own code."""
    caller: str | None = None
    """The line that is, if it is known."""
    eager: Literal["all", "rest"] | None = None
    """What of the function PyTorch leaves to Python."""


class Compilation(
    CompileTarget, frozen=True, kw_only=True, tag_field="event", tag="compilation", rename=_KEYS
):
    """One compilation."""

    kind: str
    at_ns: Count  # when it ended
    ended_at: float | None = None  # since the epoch; no line has it
    id: str | None = None  # PyTorch's compile id, such as ``0/1``
    seconds: Seconds | None = None  # how long it took; ``None`` if PyTorch does not report it
    step: Count | None = None  # how many steps there were
    code: str | None = None  # hash of the function's code
    cache: str | None = None  # ``hit`` or ``miss``; ``None`` without a lookup
    failure: str | None = None  # type of the exception
    failure_reason: str | None = None  # in PyTorch's words
    failure_hint: str | None = None  # what PyTorch says that helps
    failed_at: TracedPlace | None = None  # the traced line that failed, if that is known
    in_a_row: Count = 0  # for how many steps in a row its function has compiled again
    # which module of its class it is, where code of that class had been compiled for another
    # before: then this is a first compilation and no recompile
    instance: Count | None = None
    cudagraph_skip: str | None = None  # why it runs without CUDA graphs, in PyTorch's words
    after_warm: bool = False  # the rank had been warm before; its first warm-up has all of it
    evaluating: bool = False  # it was made within an evaluation, so between steps
    at_limit: bool = False  # its function had reached the recompile limit: nothing was compiled
    backward: bool = False  # CUDA graphs of the backward
    new_sizes: Count | None = None  # input sizes that got CUDA graphs in it; ``None`` if unknown
    recorded: Count | None = None  # CUDA graphs recorded in it; ``None`` if unknown
    # from here on as in ``Cost``, in microseconds
    phase_us: dict[str, Count] = field(default_factory=dict)
    ops: Count | None = None
    guards: Count | None = None
    guard_us: Count | None = None
    kernels: Count | None = None
    slowest: tuple[tuple[str, Count], ...] = ()
    allocated: Count | None = None
    reserved: Count | None = None

    @property
    def cost(self) -> Cost:
        """Its further costs, in seconds."""
        microseconds = {name: self.phase_us.get(name) for name in PHASES}
        return Cost(
            phase_seconds={name: us / 1e6 for name, us in microseconds.items() if us},
            ops=self.ops,
            guards=self.guards,
            guard_seconds=None if self.guard_us is None else self.guard_us / 1e6,
            kernels=self.kernels,
            slowest=tuple((name, us / 1e6) for name, us in self.slowest),
            allocated=self.allocated,
            reserved=self.reserved,
        )


class Beginning(
    CompileTarget, frozen=True, kw_only=True, tag_field="event", tag="begin", rename=_KEYS
):
    """The begin of compile activity.

    The function is known from the start if Dynamo or another compiler than PyTorch's compiles it;
    ``kind`` only of the latter.
    """

    at_ns: Count
    step: Count = 0  # how many steps there were
    what: str | None = None  # the event, in PyTorch's words
    code: str | None = None  # hash of the function's code
    id: str | None = None  # PyTorch's compile id
    backward: bool = False  # it is the backward of the function, whose forward has the same id


class Target(Beginning, frozen=True, kw_only=True, tag_field="event", tag="target", rename=_KEYS):
    """What an activity in progress compiles from now on."""


class Warm(Struct, frozen=True, kw_only=True, tag_field="event", tag="warm"):
    """The end of a warm-up. ``at``: how many steps there were."""

    t: Count
    at: Count = 0


class Recompile(
    CompileTarget, frozen=True, kw_only=True, tag_field="event", tag="recompile", rename=_KEYS
):
    """The begin of a recompile: its function and reason."""

    at_ns: Count


class GraphBreak(TracedPlace, frozen=True, kw_only=True, tag_field="event", tag="graph_break"):
    """A reason for graph breaks in Dynamo, with its place; of several places the last."""

    reason: str
    count: Count  # how often it occurred so far
    hint: str | None = None  # what PyTorch says that helps
    also: tuple[TracedPlace, ...] = ()  # its other places


class Fallback(Located, frozen=True, kw_only=True, tag_field="event", tag="fallback", rename=_KEYS):
    """A function of which some calls run eagerly: its new inputs do from ``step`` on."""

    at_ns: Count
    step: Count  # how many steps there were
    limit: Count | None = None  # that it hit
    setting: str | None = None  # the config's name of the limit, or ``flex_attention``
    id: str | None = None  # of the compilation that PyTorch refused
    score_bytes: Count | None = None  # scores of the first uncompiled call of ``flex_attention``
    main_limit: Count | None = None  # the main thread's, if its own thread has another one
    reason: str | None = None  # why the call that was refused fits no entry, as ``category``
    category: str | None = None
    inputs: str | None = None  # tensors of that call, in words
    variants: Count | None = None  # how many ``variants_of`` need an entry each
    variants_of: str | None = None  # ``parameters``, ``modules`` or ``functions``
    in_a_row: Count = 0  # for how many steps in a row it had compiled again
    in_steps: Count | None = None  # the number of steps that compiled it, the present one included
    dynamic: bool | None = None  # as in ``CompileTarget``, like ``anew``
    isolates: bool = False  # ``torch.compile`` can set a limit for it alone
    fullgraph: bool = False  # PyTorch raises at the limit
    anew: bool = False
    parameter: str | None = None


class Spill(Struct, frozen=True, kw_only=True, tag_field="event", tag="spill"):
    """A Triton kernel that spills registers."""

    kernel: str
    registers: Count  # spilled in each thread, as the driver counts them
    seconds: Seconds | None = None  # of one launch, if PyTorch measured it to tune the kernel


class CacheLookup(Struct, frozen=True, kw_only=True, tag_field="event", tag="cache"):
    """A lookup or a bypass of a compile cache."""

    cache: str  # one of ``record.CACHES``
    verdict: str  # one of ``values.VERDICTS``
    id: str | None = None  # of the compilation
    key: str | None = None  # its first characters
    reason: str | None = None  # of a bypass, in PyTorch's words
    parts: Annotated[int, Meta(gt=0, lt=10**6)] | None = None  # how many the key has
    whole: bool = False
    # short hashes of the parts, compressed: of all of them if it is ``whole``, else of those that
    # differ from the first whole one
    packed: str | None = None

    def __post_init__(self) -> None:
        if self.cache not in CACHES or self.verdict not in VERDICTS:
            raise ValueError("not a lookup in a known cache")


class CudagraphSkip(
    Located, frozen=True, kw_only=True, tag_field="event", tag="cudagraph_skip", rename=_KEYS
):
    """CUDA graphs left out as a graph ran, and the user's line that makes it so.

    No compilation has the reason.
    """

    at_ns: Count
    reason: str  # in PyTorch's words


class LongStep(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="event",
    tag="long_step",
    rename={**_KEYS, "step": "n"},
):
    """A step without compile activity that came far later than usual."""

    at_ns: Count  # when it ended
    step: Count  # which one
    seconds: Seconds  # since the previous one
    usual_seconds: Seconds  # the median then
    saving_seconds: Seconds = 0.0  # the part that the training reported as saving
    evaluating_seconds: Seconds = 0.0
    between_cells_seconds: Seconds = 0.0  # in which no cell of its notebook ran
    prompt: bool = False  # whether Python has a prompt, at which it may have waited for its user
    data_seconds: Seconds | None = None  # waiting for batches
    batches: Count | None = None  # delivered in it; ``None`` where there was none
    batches_before: Count | None = None  # delivered in all steps before it
    left_out: Count = 0  # how many others the journal left out before it

    @property
    def batches_usual(self) -> float | None:
        """Delivered in a usual step; ``None`` where there was none."""
        if self.batches_before is None or self.step < 2:
            return None
        return self.batches_before / (self.step - 1)


class Wrapping(Struct, frozen=True, kw_only=True):
    """How `torch.compile` was called, each way once."""

    mode: str = "default"
    """The argument `mode`; `default` if it was not given."""
    backend: str = "inductor"
    """The argument `backend`."""
    dynamic: bool | None = None
    """The argument `dynamic`; null if it was not given."""
    fullgraph: bool = False
    """The argument `fullgraph`."""
    options: tuple[str, ...] = ()
    """Names of the options that were set, with a short hash of each value."""
    library: str | None = None
    """The package that called it, such as that of a trainer; null if the user's code did."""


class CompileCall(Struct, frozen=True, kw_only=True, tag_field="event", tag="wrapped"):
    """A call of ``torch.compile``: its arguments; ``methods`` of the module it was called with."""

    mode: str | None = None
    backend: str | None = None
    dynamic: bool | None = None
    fullgraph: bool | None = None
    options: tuple[str, ...] = ()
    library: str | None = None
    methods: tuple[str, ...] = ()

    @property
    def wrapping(self) -> Wrapping:
        return Wrapping(
            mode=self.mode or "default",
            backend=self.backend or "inductor",
            dynamic=self.dynamic,
            fullgraph=bool(self.fullgraph),
            options=self.options,
            library=self.library,
        )


class FirstStep(Struct, frozen=True, kw_only=True, tag_field="event", tag="first_step"):
    """``peak_allocated``: peak bytes of CUDA's allocator up to its end."""

    peak_allocated: Count | None = None


class Ended(Located, frozen=True, kw_only=True, tag_field="event", tag="exit"):
    """The end of the process: the type of the exception that ended it, and the user's line."""

    exception: str | None = None
    refusal: str | None = None  # what compiled code refused, a key of ``REFUSALS``

    @property
    def raised(self) -> Place | None:
        if self.name is None or self.file is None or self.line is None:
            return None
        return Place(name=self.name, file=self.file, line=self.line)


class AgentError(Struct, frozen=True, kw_only=True, tag_field="event", tag="error"):
    """An internal error of the agent."""

    where: str | None = None
    message: str | None = None


Line = (
    Compilation
    | Beginning
    | Warm
    | Recompile
    | GraphBreak
    | Fallback
    | Spill
    | CacheLookup
    | CudagraphSkip
    | LongStep
    | CompileCall
    | FirstStep
    | Ended
    | AgentError
)


class ParsedJournal(Struct, frozen=True, kw_only=True):
    """The content of one journal, each kind in order."""

    compilations: tuple[Compilation, ...] = ()
    left_out: int = 0  # compilations beyond a limit
    breaks: tuple[GraphBreak, ...] = ()  # with the total count of each reason
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()  # except those that a compilation reports
    calls: tuple[Wrapping, ...] = ()  # the distinct calls of ``torch.compile``
    first_step_bytes: int | None = None  # as in :class:`FirstStep`

    @property
    def recompiles(self) -> tuple[Compilation, ...]:
        return tuple(made for made in self.compilations if made.category is not None)

    @property
    def late(self) -> tuple[Compilation, ...]:
        """The recompiles after the rank was warm."""
        return tuple(made for made in self.recompiles if made.after_warm)


NOTHING = ParsedJournal()
