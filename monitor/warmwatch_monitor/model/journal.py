"""The lines of a record's journal, as an agent writes them: one struct for each event.

The structs are what the monitor works with, and msgspec decodes them. A field whose name differs
from the journal's key is renamed in ``_KEYS``. ``sources/records/journal_lines.py`` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, field

from warmwatch.shared.record import CACHES, PHASES
from warmwatch.shared.values import VERDICTS
from warmwatch_monitor.figures.compile import Caller, Located
from warmwatch_monitor.figures.rank import Place
from warmwatch_monitor.figures.units import LARGEST as LARGEST
from warmwatch_monitor.figures.units import Count

Seconds = Annotated[float, Meta(ge=0, le=2.0**62)]  # excludes NaN and infinities

MOST_METHODS = 5  # of a module, as many as an agent writes
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


class CompileTarget(Located, frozen=True, kw_only=True):
    """A function that is compiled, and why."""

    kind: str | None = None
    """Such as `forward`; null as long as it is unknown."""
    reason: str | None = None
    """Why it is recompiled, in PyTorch's words; null for a first compilation."""
    category: str | None = None
    """Category of the reason, such as `shape`."""
    caller: Caller = None
    dynamic: bool | None = None
    """Whether all sizes are dynamic, or none; null: those that have changed."""
    of_class: str | None = field(default=None, name="class")
    """Class of the module or optimizer that it runs for."""
    last_batch: tuple[Count, Count] | None = None
    """The size of the last batch of an epoch and the usual one; null unless that is what changed.
    """
    anew: bool = False
    """Whether it is for a new instance of a class, and an earlier one is gone."""
    again: bool = False
    """Whether it had been compiled before, and PyTorch dropped the result: it is no recompile."""
    exported: bool = False
    """Whether PyTorch dropped it for a strict `torch.export`."""


class Cost(Struct, frozen=True, kw_only=True):
    """Cost of one compilation, or of all compilations of a function; ``None`` if not reported.

    Attributes:
        phase_seconds: exclusive time of each of ``record.PHASES`` that took any.
        ops: operators in its graph. guards: how many it has; guard_seconds: how long
        checking them once takes. kernels: how many were compiled; slowest: the slowest ones, with
        their seconds. allocated, reserved: bytes of CUDA's allocator at its end.
    """

    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    ops: int | None = None
    guards: int | None = None
    guard_seconds: float | None = None
    kernels: int | None = None
    slowest: tuple[tuple[str, float], ...] = ()
    allocated: int | None = None
    reserved: int | None = None


class Compilation(
    CompileTarget, frozen=True, kw_only=True, tag_field="event", tag="compilation", rename=_KEYS
):
    """One compilation.

    Attributes:
        id: PyTorch's compile id, such as ``0/1``, where it gave one.
        at_ns: when it ended; ended_at: since the epoch, which no line has.
        seconds: how long it took, ``None`` if PyTorch does not report it.
        step: how many steps there were.
        code: hash of the function's code. cache: ``hit``, ``miss``, or ``None`` without a lookup.
        in_a_row: for how many steps in a row its function has compiled again; 0 if it has not.
        failure: the exception's type where it failed. failure_reason: why, in PyTorch's words;
        failure_hint: what PyTorch says that helps.
        instance: which module of its class it is, where code of that class had been compiled for
        another before: then this is a first compilation and no recompile.
        cudagraph_skip: why it runs without CUDA graphs, in PyTorch's words.
        after_warm: the rank had been warm before. What compiles in the first warm-up is part of it.
        evaluating: it was made within an evaluation, so between steps. at_limit: its function had
        reached the recompile limit: nothing was compiled.
        backward: CUDA graphs of the backward. new_sizes: input sizes that got CUDA graphs in it;
        recorded: graphs recorded in it; both ``None`` if unknown.
        The others: see :class:`Cost`; here in microseconds.
    """

    kind: str
    at_ns: Count
    ended_at: float | None = None
    id: str | None = None
    seconds: Seconds | None = None
    step: Count | None = None
    code: str | None = None
    cache: str | None = None
    failure: str | None = None
    failure_reason: str | None = None
    failure_hint: str | None = None
    in_a_row: Count = 0
    instance: Count | None = None
    cudagraph_skip: str | None = None
    after_warm: bool = False
    evaluating: bool = False
    at_limit: bool = False
    backward: bool = False
    new_sizes: Count | None = None
    recorded: Count | None = None
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
    """The begin of compile activity: when, and by which event, in PyTorch's words.

    ``step``: how many steps there were. ``code``: hash of the function's code. The function is
    known from the start if Dynamo or another compiler than PyTorch's compiles it; ``kind`` only of
    the latter. ``id``: PyTorch's compile id. ``backward``: it is the backward of the function,
    whose forward has the same id.
    """

    at_ns: Count
    step: Count = 0
    what: str | None = None
    code: str | None = None
    id: str | None = None
    backward: bool = False


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


class GraphBreak(Located, frozen=True, kw_only=True, tag_field="event", tag="graph_break"):
    """A reason for graph breaks in Dynamo, and how often it occurred so far.

    ``name``, ``file``, ``line``: the place; of several places the last. library: it is not in the
    user's own code. hint: what PyTorch says that helps. whole: PyTorch leaves all of the function
    to Python.
    """

    reason: str
    count: Count
    library: bool = False
    hint: str | None = None
    whole: bool = False


class Fallback(Located, frozen=True, kw_only=True, tag_field="event", tag="fallback", rename=_KEYS):
    """A function of which some calls run eagerly.

    Attributes:
        at_ns: when. step: how many steps there were; its new inputs run eagerly from then on.
        id: of the compilation that PyTorch refused. limit: the
        limit that it hit, ``setting`` the config's name for it; ``flex_attention``: the function
        calls that uncompiled. score_bytes: of the scores of its first such call.
        main_limit: the main thread's limit, if its own thread has another one.
        reason, category: why the call that was refused fits no entry. inputs: tensors of that call,
        in words.
        variants: how many ``variants_of`` (``parameters``, ``modules``) need an entry each.
        in_a_row: for how many steps in a row it had compiled again. in_steps: the number of steps
        that compiled it. isolates: ``torch.compile`` can set a limit for it alone. fullgraph:
        PyTorch raises at the limit. anew: as of ``CompileTarget``.
    """

    at_ns: Count
    step: Count
    limit: Count | None = None
    setting: str | None = None
    id: str | None = None
    score_bytes: Count | None = None
    main_limit: Count | None = None
    reason: str | None = None
    category: str | None = None
    inputs: str | None = None
    variants: Count | None = None
    variants_of: str | None = None
    in_a_row: Count = 0
    in_steps: Count | None = None
    dynamic: bool | None = None
    isolates: bool = False
    fullgraph: bool = False
    anew: bool = False


class Spill(Struct, frozen=True, kw_only=True, tag_field="event", tag="spill"):
    """A Triton kernel that spills registers.

    Attributes:
        kernel: its name. registers: how many of each thread, as the driver counts them. seconds: of
        one launch, as PyTorch measured it while it tuned the kernel; ``None`` if it did not.
    """

    kernel: str
    registers: Count
    seconds: Seconds | None = None


class CacheLookup(Struct, frozen=True, kw_only=True, tag_field="event", tag="cache"):
    """A lookup or a bypass of a compile cache.

    Attributes:
        cache: one of ``record.CACHES``. verdict: one of ``values.VERDICTS``. reason: of a bypass,
        in PyTorch's words. id: of the compilation. key: its first characters. parts: how many the
        key has.
        packed: short hashes of the parts, compressed: of all of them if it is ``whole``, else of
        those that differ from the first whole one.
    """

    cache: str
    verdict: str
    id: str | None = None
    key: str | None = None
    reason: str | None = None
    parts: Annotated[int, Meta(gt=0, lt=10**6)] | None = None
    whole: bool = False
    packed: str | None = None

    def __post_init__(self) -> None:
        if self.cache not in CACHES or self.verdict not in VERDICTS:
            raise ValueError("not a lookup in a known cache")


class CudagraphSkip(
    Located, frozen=True, kw_only=True, tag_field="event", tag="cudagraph_skip", rename=_KEYS
):
    """CUDA graphs left out as a graph ran: no compilation has the reason.

    Attributes:
        at_ns: when. reason: PyTorch's words. name, file, line: of the user's, what makes it so.
    """

    at_ns: Count
    reason: str


class LongStep(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="event",
    tag="long_step",
    rename={**_KEYS, "step": "n"},
):
    """A step without compile activity that came far later than usual.

    Attributes:
        at_ns: when it ended. step: which one. seconds: since the previous one. usual_seconds: the
        median then. saving_seconds, evaluating_seconds, data_seconds: the part that the training
        reported as saving, evaluating and waiting for batches; between_cells_seconds: in which no
        cell of its notebook ran.
        batches: delivered in it, ``batches_before`` in all steps before it, ``batches_usual`` in a
        usual step; each ``None`` where there was none. left_out: how many others the journal left
        out before it.
    """

    at_ns: Count
    step: Count
    seconds: Seconds
    usual_seconds: Seconds
    saving_seconds: Seconds = 0.0
    evaluating_seconds: Seconds = 0.0
    between_cells_seconds: Seconds = 0.0
    data_seconds: Seconds | None = None
    batches: Count | None = None
    batches_before: Count | None = None
    left_out: Count = 0

    @property
    def batches_usual(self) -> float | None:
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
    """The content of one journal, each kind in order; ``left_out``: compilations beyond a limit.

    ``breaks``: with the total count of each reason. ``skips``: skipped CUDA graphs, except those
    that a compilation reports. ``calls``: the distinct calls of ``torch.compile``.
    ``first_step_bytes``: as of :class:`FirstStep`.
    """

    compilations: tuple[Compilation, ...] = ()
    left_out: int = 0
    breaks: tuple[GraphBreak, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()
    calls: tuple[Wrapping, ...] = ()
    first_step_bytes: int | None = None

    @property
    def recompiles(self) -> tuple[Compilation, ...]:
        return tuple(made for made in self.compilations if made.category is not None)

    @property
    def late(self) -> tuple[Compilation, ...]:
        """The recompiles after the rank was warm."""
        return tuple(made for made in self.recompiles if made.after_warm)


NOTHING = ParsedJournal()
