"""What was read of the training processes' records, and who owns them."""

from __future__ import annotations

from msgspec import Struct

from warmwatch.shared.record import Identity, Slot
from warmwatch.shared.record.stack_file import Frame
from warmwatch_monitor.model.journal import (
    Beginning,
    Compilation,
    CudagraphSkip,
    Fallback,
    FunctionCost,
    GraphBreak,
    LongStep,
    Recompile,
    VaryingDim,
)


class Owner(Struct, frozen=True, kw_only=True):
    """The user who owns a record: ``uid``, and ``name`` (the number if there is no name).

    ``own``: it is the user that this reader runs as. A run of anybody else is shown with its owner,
    always and not only where two are called the same: so a name never changes because of what
    others do, and nobody can take one that is not his. An own run whose name has an ``@`` has its
    owner behind it too, or somebody's could look like it.
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
    """The signal that killed a process, and when, in this machine's monotonic time."""

    signal: int
    at_ns: int


class RecordReading(Struct, frozen=True, kw_only=True):
    """One record as it was read.

    Attributes:
        folder: the record's folder, an id for the lifetime of its process.
        slot: its numbers; the run has its public name (``Owner.shown``).
        told_run: the run's name before a name conflict added a number; ``None`` without one.
        owner: ``None`` if not determined. alive: whether a process holds its lock.
        pid: of the holder in this reader's own pid namespace; ``None`` where not alive.
        gone_ns: when this reader found the lock released after it had seen it held; else ``None``.
        death: the signal that killed it; ``None`` if it lives, exited, or this is not known.
        compilations, fallbacks, skips: the last ones, oldest first.
        beginning, recompile: the last one in the journal, whether it has ended or not.
        breaks: reasons of graph breaks, in the order of the journal.
        varying: dimensions that changed. warm_since: when the span of clean steps began that is
        not over, and the steps by then.
        functions: the cost of each, as far as the journal was read, most expensive first.
        long_steps: the longest of those that were far longer than usual, and the last ones.
        slowed: the first of the last ten or more of them in a row.
        exception: type of the exception that ended the process. raised: the user's frame nearest
        to where it was raised.
        broken_lines: journal lines that were torn. unread_bytes: of the journal, left to the next
        polls: until then sums and lists of its lines are incomplete. skipped_bytes: never read.
        this_boot: whether its times are of this machine's boot.
    """

    folder: str
    slot: Slot
    alive: bool
    told_run: str | None = None
    owner: Owner | None = None
    pid: int | None = None
    gone_ns: int | None = None
    death: Death | None = None
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
    slowed: LongStep | None = None
    exception: str | None = None
    raised: Frame | None = None
    broken_lines: int = 0
    unread_bytes: int = 0
    skipped_bytes: int = 0
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


class Refusal(Struct, frozen=True, kw_only=True):
    """Something in a record directory that cannot be read, and why, in one sentence."""

    path: str
    reason: str
