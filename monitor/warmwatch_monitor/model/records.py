"""What was read of the training processes' records."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from warmwatch.record import Identity, Slot


class Cost(Struct, frozen=True, kw_only=True):
    """What a compilation took, or all of one function; ``None`` where PyTorch does not say.

    Attributes:
        phase_seconds: exclusive time of each of ``record.PHASES`` that took any.
        ops: operators in its graph. guards: that decide whether it fits; guard_seconds: how long
        one look at them takes. kernels: that were compiled, slowest: those that took longest, with
        their seconds. allocated, reserved: bytes of CUDA's allocator when it had ended.
    """

    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    ops: int | None = None
    guards: int | None = None
    guard_seconds: float | None = None
    kernels: int | None = None
    slowest: tuple[tuple[str, float], ...] = ()
    allocated: int | None = None
    reserved: int | None = None


class FunctionCost(Struct, frozen=True, kw_only=True):
    """What all compilations of one function took, its backwards among them.

    Attributes:
        name, file, line: the function; all ``None`` for what belongs to no function that is known.
        others: how many functions this is the sum of, each too cheap to be kept by itself; 0 of a
        function. compilations, failures: how many. seconds: together.
        cache_hits, cache_misses: of those that asked a cache and say so.
        cost: phases and kernels together; the rest is that of the last one that told.
    """

    name: str | None = None
    file: str | None = None
    line: int | None = None
    others: int = 0
    compilations: int = 0
    failures: int = 0
    seconds: float = 0.0
    cache_hits: int = 0
    cache_misses: int = 0
    cost: Cost = Cost()


class Compilation(Struct, frozen=True, kw_only=True):
    """One compilation, from a record's journal.

    Attributes:
        id: PyTorch's compile id, such as ``0/1``, where it gave one. kind: one of ``record.KINDS``.
        at_ns: when it ended. seconds: how long it took, ``None`` where PyTorch does not say.
        reason: why it was compiled again, in PyTorch's words. category: one of
        ``record.CATEGORIES``, ``None`` for a first compile.
        name: the function compiled. file, line: where it is, of the file the base name.
        code: hash of the function's code.
        cache: ``hit``, ``miss``, or ``None`` where none was asked.
        failure: the exception's type where it failed.
        cudagraph_skip: why CUDA graphs were left out of it, in PyTorch's words.
        cost: what else is known of what it took.
    """

    id: str | None
    kind: str
    at_ns: int
    seconds: float | None = None
    reason: str | None = None
    category: str | None = None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    code: str | None = None
    cache: str | None = None
    failure: str | None = None
    cudagraph_skip: str | None = None
    cost: Cost | None = None


class Beginning(Struct, frozen=True, kw_only=True):
    """The begin of compile activity, from a journal: when, and by which event, in PyTorch's words.

    Attributes:
        kind: of another compiler than PyTorch's; what it compiles is known at once.
        name, file, line: what is compiled, of PyTorch's where it is a function that Dynamo looks
        at. code: hash of that function's code.
    """

    at_ns: int
    what: str | None = None
    kind: str | None = None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    code: str | None = None


class Recompile(Struct, frozen=True, kw_only=True):
    """A recompile that begins, from a record's journal: what it is of, and why; see Compilation."""

    at_ns: int
    kind: str | None = None
    reason: str | None = None
    category: str | None = None
    name: str | None = None
    file: str | None = None
    line: int | None = None


FEWEST_STEPS = 10  # clean steps whose mean says something


class VaryingDim(Struct, frozen=True, kw_only=True):
    """A dimension for which a function was compiled again, over all that was read of a journal.

    Attributes:
        tensor: the argument's name. dim: which of its dimensions; ``None`` of a number that the
        function was compiled for, one by one. name, file, line: the function.
        values: its sizes that were seen, in order; ``complete``: all of them were kept.
        lowest, highest: of all. count: recompiles. seconds: they took together, with their
        backwards; ``None`` where PyTorch does not say. timed: of how many it does.
        last_id: compile id of the last one.
        before_seconds: mean clean step before the first of them. since_ns, since_steps: clean steps
        after it, with whatever size they had.
    """

    tensor: str
    dim: int | None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    values: tuple[int, ...] = ()
    complete: bool = True
    lowest: int | None = None
    highest: int | None = None
    count: int = 0
    seconds: float | None = None
    timed: int = 0
    last_id: str | None = None
    before_seconds: float | None = None
    since_ns: int = 0
    since_steps: int = 0


class GraphBreak(Struct, frozen=True, kw_only=True):
    """A reason for which Dynamo broke graphs, and how often when it was first told.

    ``name``, ``file``, ``line``: where, of several places the last.
    """

    reason: str
    count: int
    name: str | None = None
    file: str | None = None
    line: int | None = None


class Fallback(Struct, frozen=True, kw_only=True):
    """A frame that hit the recompile limit, from a record's journal.

    Attributes:
        at_ns: when. step: how many steps there were; it runs eagerly from the next one on.
        name: the function. limit: the limit that it hit, ``setting`` the config's name for it.
    """

    at_ns: int
    step: int
    name: str | None = None
    limit: int | None = None
    setting: str | None = None


class CudagraphSkip(Struct, frozen=True, kw_only=True):
    """CUDA graphs left out as a graph ran, from a record's journal: no compilation has the reason.

    Attributes:
        at_ns: when. reason: PyTorch's words. name, file, line: of the user's, what makes it so.
    """

    at_ns: int
    reason: str
    name: str | None = None
    file: str | None = None
    line: int | None = None


class LongStep(Struct, frozen=True, kw_only=True):
    """A step without compile activity that came far later than usual, from a record's journal.

    Attributes:
        at_ns: when it ended. step: which one. seconds: since the one before, ``usual_seconds`` the
        median then. saving_seconds, evaluating_seconds, data_seconds: of it, what the training
        said it saved and evaluated, and waiting for batches.
        batches: that were handed out in it, ``batches_usual`` in a usual step; each ``None`` where
        there was none. left_out: how many others the journal left out before it.
    """

    at_ns: int
    step: int
    seconds: float
    usual_seconds: float
    saving_seconds: float = 0.0
    evaluating_seconds: float = 0.0
    data_seconds: float | None = None
    batches: int | None = None
    batches_usual: float | None = None
    left_out: int = 0


class Owner(Struct, frozen=True, kw_only=True):
    """Whose a record is: the user's ``uid`` and ``name`` (else the number).

    ``own``: it is the user that this reader runs as. A run of anybody else is shown with its owner,
    always and not only where two are called the same: so a name never changes because of what
    others do, and nobody can take one that is not his. An own run whose name has an ``@`` has its
    owner behind it too, or somebody's could look like it.
    """

    uid: int
    name: str
    own: bool

    def shown(self, run: str) -> str:
        """What a run of this owner is called: ``gpt2``, ``gpt2@alice``."""
        return run if self.own and "@" not in run else f"{run}@{self.name}"

    def plain(self, shown: str) -> str:
        """The run's own name again."""
        return shown.removesuffix(f"@{self.name}")


def began_launch(identity: Identity) -> bool:
    """Whether the launch began with this process, which is no rank or child of another."""
    kind, pid, *_ = *identity.launch.split(":"), ""  # and which process of that pid it was
    return kind == "process" and pid == str(identity.pid)


def last_sign_ns(slot: Slot) -> int:
    """The last moment that a slot tells of, but of an end; in its own monotonic time."""
    counts = slot.compile
    return max(
        slot.header.attached_ns,
        slot.steps.last_step_ns,
        counts.last_end_ns,
        counts.active_since_ns,
        counts.accounted_ns,
    )


class RecordReading(Struct, frozen=True, kw_only=True):
    """One record as it was read.

    Attributes:
        folder: the record's folder, an id for the life of the process it speaks for.
        slot: its numbers; the run is called as its owner's is shown.
        told_run: the run's name before a number told it from a namesake; ``None`` where none did.
        owner: whose it is; ``None`` where nobody looked. alive: whether a process holds its lock.
        pid: of the holder in this reader's own pid namespace; ``None`` where not alive.
        gone_ns: when this reader saw the lock free after it had seen it held; else ``None``.
        compilations, fallbacks, skips: the last ones, oldest first.
        beginning, recompile: the last one that the journal tells of, whether it has ended or not.
        breaks: reasons of graph breaks, in the order in which they were told.
        varying: dimensions that changed. warm_since: when the span of clean steps began that is
        not over, and the steps by then.
        functions: what each cost, as far as the journal was read, the dearest first.
        long_steps: the longest of those that were far longer than usual, and the last ones.
        exception: type of the exception that ended the process.
        broken_lines: journal lines that were torn.
        this_boot: whether its times are of this machine's boot.
    """

    folder: str
    slot: Slot
    alive: bool
    told_run: str | None = None
    owner: Owner | None = None
    pid: int | None = None
    gone_ns: int | None = None
    compilations: tuple[Compilation, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()
    beginning: Beginning | None = None
    recompile: Recompile | None = None
    breaks: tuple[GraphBreak, ...] = ()
    varying: tuple[VaryingDim, ...] = ()
    warm_since: tuple[int, int] | None = None
    functions: tuple[FunctionCost, ...] = ()
    long_steps: tuple[LongStep, ...] = ()
    exception: str | None = None
    broken_lines: int = 0
    this_boot: bool = True

    @property
    def start(self) -> tuple[str, int]:
        """Which start of its run the record is of."""
        return self.slot.identity.launch, self.slot.identity.attempt

    @property
    def began(self) -> tuple[bool, int]:
        """For telling which of two began later: by the wall clock, which can be set back, only
        where they are of other boots."""
        header = self.slot.header
        return self.this_boot, header.attached_ns if self.this_boot else header.attached_epoch_ns


class Refusal(Struct, frozen=True, kw_only=True):
    """Something in a record directory that cannot be read, and why, in one sentence."""

    path: str
    reason: str
