"""What was read of the training processes' records: slot, journal lines, owner.

The journal reports compilations, recompiles, graph breaks, fallbacks and long steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from warmwatch.shared.record import Identity, Slot
from warmwatch_monitor.published import Place

FEWEST_STEPS = 10  # clean steps; a mean of fewer is too noisy

# What counts as a compilation: one record of PyTorch's for one graph. Autotuning of a
# kernel and recording of a CUDA graph are records too, but do not count.
OF_GRAPHS = ("forward", "backward", "other")
_BEGIN = ("forward", "other")


class Recorded(Protocol):
    """One of PyTorch's compile records, from any data source."""

    @property
    def id(self) -> str | None: ...
    @property
    def kind(self) -> str: ...


def families(records: Sequence[Recorded]) -> list[list[int]]:
    """Positions in ``records`` of each compilation, with those of the records that belong to it.

    A backward, autotuning and CUDA graph recordings belong to it: PyTorch records them later,
    under its id, until a forward has that id again (after ``torch._dynamo.reset()``). The cost of a
    recompile is the sum over its family, in every view.
    """
    found: list[list[int]] = []
    by_id: dict[str, list[int]] = {}
    for at, one in enumerate(records):
        known = by_id.get(one.id) if one.id else None
        again = (
            one.kind in _BEGIN
            and known
            and any(records[k].kind in (one.kind, "backward") for k in known)
        )
        if known is None or again:
            found.append([at])
            if one.id:
                by_id[one.id] = found[-1]
        else:
            known.append(at)
    return found


class Located(Struct, frozen=True, kw_only=True):
    """What a function of the program caused.

    ``name``, ``file``, ``line``: the function, its file's base name, and its line; all ``None``
    where no function is known.
    """

    name: str | None = None
    file: str | None = None
    line: int | None = None


class CompileTarget(Located, frozen=True, kw_only=True):
    """A function that is compiled, and why.

    Attributes:
        kind: one of ``record.KINDS``; ``None`` as long as it is unknown. reason: why it is
        recompiled, in PyTorch's words. category: one of ``record.REASONS``; both ``None`` for a
        first compilation.
        caller: of library code, the user's line that called it, such as ``train.py:31``; empty if
        there is none; ``None`` for the user's own. dynamic: all sizes are dynamic, or none;
        ``None``: those that have changed. of_class: of the module or optimizer that it runs for.
        last_batch: the size of the last batch of an epoch and the usual one, if that changed.
        anew: it is for a new instance, and an earlier one is gone.
    """

    kind: str | None = None
    reason: str | None = None
    category: str | None = None
    caller: str | None = None
    dynamic: bool | None = None
    of_class: str | None = None
    last_batch: tuple[int, int] | None = None
    anew: bool = False


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


class Recordings(Located, frozen=True, kw_only=True):
    """The CUDA graphs of one compilation.

    Attributes:
        sizes: of inputs, each with CUDA graphs of its own, of the
        forward and of the backward. recorded: graphs that were recorded. seconds: how long that
        took, without the steps that PyTorch runs first. grown_bytes: what CUDA's allocator reserved
        from the first recording to the last; ``None`` if unknown.
    """

    sizes: tuple[int, int] = (0, 0)
    recorded: int = 0
    seconds: float = 0.0
    first_reserved: int | None = None
    last_reserved: int | None = None

    @property
    def grown_bytes(self) -> int | None:
        if self.first_reserved is None or self.last_reserved is None:
            return None
        return max(0, self.last_reserved - self.first_reserved)


class FunctionCost(Located, frozen=True, kw_only=True):
    """Cost of all compilations of one function, including its backwards.

    Attributes:
        others: how many cheap functions this entry sums up; 0 for a single
        function. compilations: records of OF_GRAPHS. failures: how many. seconds: of all records.
        cache_hits, cache_misses: as reported by cache lookups. caller: ``None`` if
        several lines called it; see :class:`CompileTarget`.
        cost: phases and kernels are sums; the rest is from the last compilation that has it.
    """

    others: int = 0
    compilations: int = 0
    failures: int = 0
    seconds: float = 0.0
    cache_hits: int = 0
    cache_misses: int = 0
    cost: Cost = Cost()
    caller: str | None = None


class Compilation(CompileTarget, frozen=True, kw_only=True):
    """One compilation, from a record's journal.

    Attributes:
        id: PyTorch's compile id, such as ``0/1``, where it gave one.
        at_ns: when it ended. seconds: how long it took, ``None`` if PyTorch does not report it.
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
        cost: further costs.
    """

    id: str | None
    kind: str
    at_ns: int
    seconds: float | None = None
    code: str | None = None
    cache: str | None = None
    failure: str | None = None
    failure_reason: str | None = None
    failure_hint: str | None = None
    in_a_row: int = 0
    instance: int | None = None
    cudagraph_skip: str | None = None
    after_warm: bool = False
    evaluating: bool = False
    at_limit: bool = False
    backward: bool = False
    new_sizes: int | None = None
    recorded: int | None = None
    cost: Cost | None = None


class Beginning(CompileTarget, frozen=True, kw_only=True):
    """The begin of compile activity, from a journal: when, and by which event, in PyTorch's words.

    ``code``: hash of the function's code. The function is known from the start if Dynamo or another
    compiler than PyTorch's compiles it; ``kind`` only of the latter. ``id``: PyTorch's compile id.
    ``backward``: it is the backward of the function, whose forward has the same id.
    """

    at_ns: int
    what: str | None = None
    code: str | None = None
    id: str | None = None
    backward: bool = False


class Recompile(CompileTarget, frozen=True, kw_only=True):
    """The begin of a recompile, from a record's journal: its function and reason."""

    at_ns: int


class VaryingDim(Located, frozen=True, kw_only=True):
    """A dimension that caused recompiles of a function, over the journal as far as it was read.

    Attributes:
        tensor: the argument's name. dim: which of its dimensions; ``None`` of a number that the
        function was compiled for, one by one.
        values: its sizes, in order; ``complete``: the list has all of them.
        lowest, highest: of all sizes. count: recompiles. seconds: their total, with their
        backwards; ``None`` if PyTorch does not report it. timed: how many have a time.
        last_id: compile id of the last one. dynamic: of the last one, as in :class:`Compilation`.
        within_step: all of them compiled in one step, for different tensors of it.
        before_seconds: mean clean step before the first of them. since_ns, since_steps: clean steps
        after it, with whatever size they had.
    """

    tensor: str
    dim: int | None
    values: tuple[int, ...] = ()
    complete: bool = True
    lowest: int | None = None
    highest: int | None = None
    count: int = 0
    seconds: float | None = None
    timed: int = 0
    last_id: str | None = None
    dynamic: bool | None = None
    within_step: bool = False
    before_seconds: float | None = None
    since_ns: int = 0
    since_steps: int = 0


class GraphBreak(Located, frozen=True, kw_only=True):
    """A reason for graph breaks in Dynamo, and how often it occurred so far.

    ``name``, ``file``, ``line``: the place; of several places the last. library: it is not in the
    user's own code. hint: what PyTorch says that helps. whole: PyTorch leaves all of the function
    to Python.
    """

    reason: str
    count: int
    library: bool = False
    hint: str | None = None
    whole: bool = False


class Fallback(Located, frozen=True, kw_only=True):
    """A function of which some calls run eagerly, from a record's journal.

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
        that compiled it. isolates: ``torch.compile`` can set a limit for it alone. anew: as of
        ``CompileTarget``.
    """

    at_ns: int
    step: int
    limit: int | None = None
    setting: str | None = None
    id: str | None = None
    score_bytes: int | None = None
    main_limit: int | None = None
    reason: str | None = None
    category: str | None = None
    inputs: str | None = None
    variants: int | None = None
    variants_of: str | None = None
    in_a_row: int = 0
    in_steps: int | None = None
    dynamic: bool | None = None
    isolates: bool = False
    anew: bool = False


class Spill(Struct, frozen=True, kw_only=True):
    """A Triton kernel that spills registers, from a record's journal.

    Attributes:
        kernel: its name. registers: how many of each thread, as the driver counts them. seconds: of
        one launch, as PyTorch measured it while it tuned the kernel; ``None`` if it did not.
    """

    kernel: str
    registers: int
    seconds: float | None = None


class CudagraphSkip(Located, frozen=True, kw_only=True):
    """CUDA graphs left out as a graph ran, from a record's journal: no compilation has the reason.

    Attributes:
        at_ns: when. reason: PyTorch's words. name, file, line: of the user's, what makes it so.
    """

    at_ns: int
    reason: str


class LongStep(Struct, frozen=True, kw_only=True):
    """A step without compile activity that came far later than usual, from a record's journal.

    Attributes:
        at_ns: when it ended. step: which one. seconds: since the previous one. usual_seconds: the
        median then. saving_seconds, evaluating_seconds, data_seconds: the part that the training
        reported as saving, evaluating and waiting for batches; between_cells_seconds: in which no
        cell of its notebook ran.
        batches: delivered in it, ``batches_usual`` in a usual step; each ``None`` where
        there was none. left_out: how many others the journal left out before it.
    """

    at_ns: int
    step: int
    seconds: float
    usual_seconds: float
    saving_seconds: float = 0.0
    evaluating_seconds: float = 0.0
    between_cells_seconds: float = 0.0
    data_seconds: float | None = None
    batches: int | None = None
    batches_usual: float | None = None
    left_out: int = 0


class CompileCauses(Struct, frozen=True, kw_only=True):
    """Compile causes from one journal, oldest first.

    ``late``: the recompiles after the rank was warm. ``skips``: skipped CUDA
    graphs, except those that a compilation reports.
    """

    compilations: tuple[Compilation, ...] = ()
    late: tuple[Compilation, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()

    @property
    def recompiles(self) -> tuple[Compilation, ...]:
        return tuple(one for one in self.compilations if one.category is not None)


NOTHING = CompileCauses()


class Owner(Struct, frozen=True, kw_only=True):
    """The user who owns a record: ``uid``, and ``name`` (the number if there is no name).

    ``own``: whether it is the user that this reader runs as. A run of another user always shows its
    owner, even where its name is unique. So no name changes because of other users' runs, and no
    user can take another's name. An own run with an ``@`` in its name shows its owner too;
    otherwise another user's run could look like it.
    """

    uid: int
    name: str
    own: bool

    def shown(self, run: str) -> str:
        """The public name of this owner's run: ``gpt2``, ``gpt2@alice``."""
        return run if self.own and "@" not in run else f"{run}@{self.name}"

    def plain(self, shown: str) -> str:
        """The run's own name, without the owner."""
        return shown.removesuffix(f"@{self.name}")


def began_launch(identity: Identity) -> bool:
    """Whether the launch began with this process, which is no rank or child of another."""
    kind, pid, *_ = *identity.launch.split(":"), ""  # and which process of that pid it was
    return kind == "process" and pid == str(identity.pid)


def last_sign_ns(slot: Slot) -> int:
    """The latest event in a slot except an end, in its own monotonic time."""
    counts = slot.compile
    return max(
        slot.header.attached_ns,
        slot.steps.last_step_ns,
        counts.last_end_ns,
        counts.active_since_ns,
        counts.accounted_ns,
    )


class Death(Struct, frozen=True, kw_only=True):
    """The signal that killed a process, and when, in this machine's monotonic time.

    ``out_of_memory``: whether an earlier daemon saw that the OOM killer sent it; ``None``: unknown.
    """

    signal: int
    at_ns: int
    out_of_memory: bool | None = None


class Journaled(Struct, frozen=True, kw_only=True):
    """What a journal reports of the compiler and of long steps.

    Attributes:
        compilations, fallbacks: the last ones, oldest first. skips: of CUDA graphs, except those
        that a compilation reports.
        breaks: reasons of graph breaks, in the order of the journal.
        varying: dimensions that caused recompiles.
        functions: the cost of each, as far as the journal was read, most expensive first; ``None``
        if no journal was read.
        recordings: the CUDA graphs of each compilation. spills: kernels that spill registers.
        long_steps: the longest of those that were far longer than usual and did not compile, and
        the last ones.
        methods: of the modules passed to ``torch.compile``, beside ``forward``.
    """

    compilations: tuple[Compilation, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    varying: tuple[VaryingDim, ...] = ()
    functions: tuple[FunctionCost, ...] | None = None
    recordings: tuple[Recordings, ...] = ()
    spills: tuple[Spill, ...] = ()
    long_steps: tuple[LongStep, ...] = ()
    methods: tuple[str, ...] = ()


class WorkerCompilations(Struct, frozen=True, kw_only=True):
    """What the workers of a training's DataLoaders have compiled, by their own entries.

    Attributes:
        since_ns: begins of the activities in progress, the oldest first. processes: workers that
        have compiled. at_once: the most of them that lived at one time. compile_ns: time of the
        activities that have ended. name: of the function that compiled last.
    """

    since_ns: tuple[int, ...] = ()
    processes: int = 0
    at_once: int = 0
    compile_ns: int = 0
    name: str | None = None

    @property
    def renewed(self) -> bool:
        """Whether new workers have compiled again what earlier ones had compiled."""
        return self.processes > self.at_once


class RecordReading(Journaled, frozen=True, kw_only=True):
    """One record as it was read.

    Attributes:
        folder: the record's folder, an id for the lifetime of its process.
        slot: its numbers; the run has its public name (``Owner.shown``).
        reported_run: the run's name before a name conflict added a number; ``None`` without one.
        owner: ``None`` if not determined. alive: whether a process holds its lock.
        pid: of the holder in this reader's own pid namespace; ``None`` where not alive.
        gone_ns: when this reader found the lock released after it had seen it held; else ``None``.
        death: the signal that killed it; ``None`` if it lives, exited, or this is not known.
        beginning, recompile: the last one in the journal, whether it has ended or not.
        warm_since: when the span of clean steps began that is not over, and the steps by then.
        slowed: the first of the last ten or more long steps in a row.
        exception: type of the exception that ended the process. raised: the user's frame nearest
        to where it was raised.
        broken_lines: journal lines that were torn. unread_bytes: of the journal, left to the next
        polls: until then sums and lists of its lines are incomplete. skipped_bytes: never read.
        workers: what the workers of its DataLoaders compile; ``None`` if none has compiled.
        this_boot: whether its times are of this machine's boot.
    """

    folder: str
    slot: Slot
    alive: bool
    reported_run: str | None = None
    owner: Owner | None = None
    pid: int | None = None
    gone_ns: int | None = None
    death: Death | None = None
    beginning: Beginning | None = None
    recompile: Recompile | None = None
    warm_since: tuple[int, int] | None = None
    functions: tuple[FunctionCost, ...] = ()
    slowed: LongStep | None = None
    exception: str | None = None
    raised: Place | None = None
    broken_lines: int = 0
    unread_bytes: int = 0
    skipped_bytes: int = 0
    workers: WorkerCompilations | None = None
    this_boot: bool = True

    @property
    def start(self) -> tuple[str, int]:
        """Which start of its run the record belongs to."""
        return self.slot.identity.launch, self.slot.identity.attempt

    @property
    def began(self) -> tuple[bool, int]:
        """Sort key by begin. It uses the wall clock, which can be set back, only
        where they are of other boots."""
        header = self.slot.header
        return self.this_boot, header.attached_ns if self.this_boot else header.attached_epoch_ns

    @property
    def is_unexplained(self) -> bool:
        """Whether its process ended without an exit record, and no signal is known."""
        return not (self.alive or self.death or self.slot.compile.end_code)
