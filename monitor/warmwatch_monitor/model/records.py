"""What was read of the training processes' records: slot, sums of the journal, owner."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.record import Identity, Slot, with_exit_code
from warmwatch_monitor.figures.compile import FunctionTotals, Located
from warmwatch_monitor.figures.rank import Place
from warmwatch_monitor.model.journal import (
    Beginning,
    Compilation,
    Cost,
    CudagraphSkip,
    Fallback,
    GraphBreak,
    LongStep,
    Recompile,
    Spill,
)
from warmwatch_monitor.model.machine import GpuReading

FEWEST_STEPS = 10  # clean steps; a mean of fewer is too noisy

BEGIN = ("forward", "other")  # the first record of a compilation


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
    groups: list[list[int]] = []
    by_id: dict[str, list[int]] = {}
    for at, recorded in enumerate(records):
        numbers = by_id.get(recorded.id) if recorded.id else None
        again = (
            recorded.kind in BEGIN
            and numbers
            and any(records[k].kind in (recorded.kind, "backward") for k in numbers)
        )
        if numbers is None or again:
            groups.append([at])
            if recorded.id:
                by_id[recorded.id] = groups[-1]
        else:
            numbers.append(at)
    return groups


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


class FunctionCost(FunctionTotals, frozen=True, kw_only=True):
    """Cost of all compilations of one function, including its backwards.

    Attributes:
        others: how many cheap functions this entry sums up; 0 for a single function.
        caller: ``None`` if several lines called it; see :class:`CompileTarget`.
        cost: phases and kernels are sums; the rest is from the last compilation that has it.
    """

    others: int = 0
    cost: Cost = Cost()
    caller: str | None = None


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
        one_more: of a number: the last one compiled for a value that ``values`` does not have.
        helps: the remedy for this number; ``None``: that of any number.
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
    one_more: bool = False
    helps: str | None = None
    before_seconds: float | None = None
    since_ns: int = 0
    since_steps: int = 0


class CacheBypass(Struct, frozen=True, kw_only=True):
    """A compile cache that stored no graph, and how often: ``reason`` in PyTorch's words."""

    cache: str
    reason: str
    count: int = 1


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


def is_present(folder: str, present: Collection[str] | None) -> bool:
    """Whether a record exists, or cannot be checked now.

    ``present``: the folders of the existing records, and the directories that cannot be read now;
    ``None`` if no directory could be read.
    """
    return present is None or folder in present or folder.rpartition("/")[0] in present


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
    """How the kernel reports the end of a process, and when, in this machine's monotonic time.

    Attributes:
        signal: the one that killed it; 0 if it exited, with ``exit_code``.
        out_of_memory: whether an earlier daemon saw that the OOM killer sent the signal; ``None``:
            unknown.
    """

    at_ns: int
    signal: int = 0
    exit_code: int = 0
    out_of_memory: bool | None = None


class Journaled(Struct, frozen=True, kw_only=True):
    """What a journal reports of the compiler and of long steps.

    Attributes:
        compilations, fallbacks: the last ones, oldest first. skips: of CUDA graphs, except those
        that a compilation reports. dearest: the compilation with a remedy that took longest;
        dearest_seconds: with what belongs to it. strict_exports: the sum of all.
        breaks: reasons of graph breaks, in the order of the journal.
        varying: dimensions that caused recompiles.
        functions: the cost of each, as far as the journal was read, most expensive first; ``None``
        if no journal was read.
        recordings: the CUDA graphs of each compilation. spills: kernels that spill registers.
        long_steps: the longest of those that were far longer than usual and did not compile, and
        the last ones. bypasses: of compile caches, by cache and reason.
        methods: of the modules passed to ``torch.compile``, beside ``forward``.
    """

    compilations: tuple[Compilation, ...] = ()
    dearest: Compilation | None = None
    dearest_seconds: float = 0.0
    strict_exports: FunctionCost = FunctionCost()
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    varying: tuple[VaryingDim, ...] = ()
    functions: tuple[FunctionCost, ...] | None = None
    recordings: tuple[Recordings, ...] = ()
    spills: tuple[Spill, ...] = ()
    bypasses: tuple[CacheBypass, ...] = ()
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


class Outside(Struct, frozen=True, kw_only=True):
    """Builds below a rank that its agent could not record, as the process tree has shown them.

    Attributes:
        ended: builds that are over. total_ns: their length. longest_ns: of the longest.
        since_ns: begin of the build in progress; 0 if there is none. seen_ns: when a busy compiler
        was last seen, without activity of the rank's own. began_ns, ended_ns: of the last one that
        is over.
        steps: the number of steps at its time. before: for each build that is over, the steps
        before it, newest first.
        stretch_ns: begin of the first build since the last step. before_ns: length of those before.
    """

    ended: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    since_ns: int = 0
    seen_ns: int = 0
    began_ns: int = 0
    ended_ns: int = 0
    steps: int = 0
    before: tuple[int, ...] = ()
    stretch_ns: int = 0
    before_ns: int = 0


class RecordReading(Journaled, frozen=True, kw_only=True):
    """One record as it was read.

    Attributes:
        folder: the record's folder, an id for the lifetime of its process.
        slot: its numbers; the run has its public name (``Owner.shown``).
        reported_run: the run's name before a name conflict added a number; ``None`` without one.
        owner: ``None`` if not determined. alive: whether a process holds its lock.
        pid: of the holder in this reader's own pid namespace; ``None`` where not alive.
        gone_ns: when it died, or else when this reader found the lock released after it had seen it
        held; ``None`` if neither is known.
        death: its end by the kernel's account, if it wrote no exit status; ``None`` if it lives, or
        this is not known.
        beginning, recompile: the last one in the journal, whether it has ended or not.
        warm_since: when the span of clean steps began that is not over, and the steps by then.
        slowed: the first of the last ten or more long steps in a row.
        exception: type of the exception that ended the process. raised: the user's frame nearest
        to where it was raised.
        broken_lines: journal lines that were torn. unread_bytes: of the journal, left to the next
        polls: until then sums and lists of its lines are incomplete. skipped_bytes: never read.
        workers: what the workers of its DataLoaders compile; ``None`` if none has compiled.
        this_boot: whether its times are of this machine's boot.
        outside: what ``slot`` has of builds that only the process tree shows.
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
    outside: Outside | None = None

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
        """Whether a daemon may have seen more: how it ended, or a build in a long step."""
        return bool(self.long_steps) or not (self.alive or self.death or self.slot.compile.end_code)

    def with_death(self, death: Death) -> RecordReading:
        """The same of a process that wrote no exit status, and ended like this."""
        slot = self.slot
        if not death.signal:
            slot = slot._replace(compile=with_exit_code(slot.compile, death.exit_code))
        return replace(self, death=death, slot=slot, gone_ns=death.at_ns)


def _by_uuid(gpus: Iterable[GpuReading]) -> dict[str, GpuReading]:
    """Devices by uuid, with and without the prefix, which differs between CUDA and NVML."""
    devices: dict[str, GpuReading] = {}
    for gpu in gpus:
        devices[gpu.uuid] = gpu
        devices.setdefault(_bare(gpu.uuid), gpu)
    return devices


def owned(
    readings: Iterable[RecordReading], gpus: Iterable[GpuReading]
) -> dict[str, tuple[GpuReading, ...]]:
    """By record, the devices that its rank reports, of those that are known here."""
    devices = _by_uuid(gpus)
    return {reading.folder: _used(reading, devices) for reading in readings}


def _used(reading: RecordReading, devices: Mapping[str, GpuReading]) -> tuple[GpuReading, ...]:
    """The devices that the rank reports, of those that are known here."""
    uuids = reading.slot.identity.gpus
    generator = (devices.get(uuid) or devices.get(_bare(uuid)) for uuid in uuids)
    return tuple(gpu for gpu in generator if gpu is not None)


def _bare(uuid: str) -> str:
    return uuid.removeprefix("MIG-").removeprefix("GPU-")
