"""What was read of the training processes' records: slot, sums of the journal, owner."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from signal import Signals
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
    for position, record in enumerate(records):
        group = by_id.get(record.id) if record.id else None
        begins_again = group and (
            record.kind in BEGIN
            and any(records[other].kind in (record.kind, "backward") for other in group)
        )
        if group is None or begins_again:
            groups.append([position])
            if record.id:
                by_id[record.id] = groups[-1]
        else:
            group.append(position)
    return groups


class Recordings(Located, frozen=True, kw_only=True):
    """The CUDA graphs of one compilation."""

    # input sizes of the forward and of the backward, each with CUDA graphs of its own
    sizes: tuple[int, int] = (0, 0)
    recorded: int = 0  # graphs that were recorded
    seconds: float = 0.0  # how long that took, without the steps that PyTorch runs first
    first_reserved: int | None = None  # bytes of CUDA's allocator at the first, and at the last one
    last_reserved: int | None = None

    @property
    def grown_bytes(self) -> int | None:
        """What the allocator reserved from the first recording to the last; ``None`` if unknown."""
        if self.first_reserved is None or self.last_reserved is None:
            return None
        return max(0, self.last_reserved - self.first_reserved)


class FunctionCost(FunctionTotals, frozen=True, kw_only=True):
    """Cost of all compilations of one function, including its backwards."""

    others: int = 0  # how many cheap functions this entry sums up; 0 for a single function
    cost: Cost = Cost()  # phases and kernels are sums; the rest is of the last one that has it
    caller: str | None = None  # as in ``CompileTarget``; ``None`` if several lines called it


class VaryingDim(Located, frozen=True, kw_only=True):
    """A dimension that caused recompiles of a function, over the journal as far as it was read."""

    tensor: str  # the argument's name
    dim: int | None  # which of its dimensions; ``None`` of a number that is compiled for each value
    values: tuple[int, ...] = ()  # its sizes, in order
    complete: bool = True  # ``values`` has all of them
    lowest: int | None = None  # of all sizes, as ``highest``
    highest: int | None = None
    count: int = 0  # recompiles
    seconds: float | None = None  # of all with their backwards; ``None`` if PyTorch reports no time
    timed: int = 0  # how many have a time
    last_id: str | None = None  # compile id of the last one
    dynamic: bool | None = None  # of the last one, as in ``Compilation``
    within_step: bool = False  # all of them compiled in one step, for different tensors of it
    one_more: bool = False  # of a number: the last value that it compiled for is not in ``values``
    helps: str | None = None  # the remedy for this one; ``None``: that of any size or number
    before_seconds: float | None = None  # mean clean step before the first of them
    since_ns: int = 0  # clean steps after it, with whatever size they had, as ``since_steps``
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


def signal_name(signal: int) -> str:
    """Its name, such as SIGKILL; most real-time signals have none."""
    with suppress(ValueError):
        return Signals(signal).name
    return f"signal {signal}"


class Death(Struct, frozen=True, kw_only=True):
    """How the kernel reports the end of a process."""

    at_ns: int  # in this machine's monotonic time
    signal: int = 0  # that killed it; 0 if it exited, with ``exit_code``
    exit_code: int = 0
    out_of_memory: bool | None = None  # an earlier daemon saw that the OOM killer sent the signal


class Journaled(Struct, frozen=True, kw_only=True):
    """What a journal reports of the compiler and of long steps."""

    compilations: tuple[Compilation, ...] = ()  # the last ones, oldest first
    dearest: Compilation | None = None  # the one with a remedy that took longest
    dearest_seconds: float = 0.0  # with what belongs to it
    strict_exports: FunctionCost = FunctionCost()  # the sum of all
    fallbacks: tuple[Fallback, ...] = ()  # the last ones, oldest first
    skips: tuple[CudagraphSkip, ...] = ()  # except those that a compilation reports
    breaks: tuple[GraphBreak, ...] = ()  # in the order of the journal
    varying: tuple[VaryingDim, ...] = ()
    # the most expensive first, as far as the journal was read; ``None`` if it was not
    functions: tuple[FunctionCost, ...] | None = None
    recordings: tuple[Recordings, ...] = ()
    spills: tuple[Spill, ...] = ()
    bypasses: tuple[CacheBypass, ...] = ()  # by cache and reason
    # the longest of those that were far longer than usual and did not compile, and the last ones
    long_steps: tuple[LongStep, ...] = ()
    methods: tuple[str, ...] = ()  # of the modules passed to ``torch.compile``, beside ``forward``


class WorkerCompilations(Struct, frozen=True, kw_only=True):
    """What the workers of a training's DataLoaders have compiled, by their own entries."""

    since_ns: tuple[int, ...] = ()  # begins of the activities in progress, the oldest first
    processes: int = 0  # workers that have compiled
    at_once: int = 0  # the most of them that lived at one time
    compile_ns: int = 0  # of the activities that have ended
    name: str | None = None  # of the function that compiled last

    @property
    def renewed(self) -> bool:
        """Whether new workers have compiled again what earlier ones had compiled."""
        return self.processes > self.at_once


class Outside(Struct, frozen=True, kw_only=True):
    """Builds below a rank that its agent could not record, as the process tree has shown them."""

    ended: int = 0  # builds that are over, with their length, and that of the longest
    total_ns: int = 0
    longest_ns: int = 0
    since_ns: int = 0  # begin of the build in progress; 0 if there is none
    seen_ns: int = 0  # when a busy compiler was last seen, without activity of the rank's own
    began_ns: int = 0  # of the last build that is over, as ``ended_ns``
    ended_ns: int = 0
    steps: int = 0  # the number of steps at the time of the last build
    before: tuple[int, ...] = ()  # the steps before each build that is over, newest first
    stretch_ns: int = 0  # begin of the first build since the last step
    before_ns: int = 0  # length of the builds before that


class RecordReading(Journaled, frozen=True, kw_only=True):
    """One record as it was read."""

    folder: str  # an id for the lifetime of its process
    slot: Slot  # with the run's public name (``Owner.shown``)
    alive: bool  # a process holds its lock
    reported_run: str | None = None  # the run's name before a name conflict added a number
    owner: Owner | None = None  # ``None`` if not determined
    pid: int | None = None  # of the living process, in this reader's own pid namespace
    # When it died, or else when this reader found the lock released after it had seen it held.
    gone_ns: int | None = None
    # Of one that is gone: its torchrun may start its rank again, since it lives or is not seen.
    restart_possible: bool | None = None
    death: Death | None = None  # if it wrote no exit status, and the kernel reports its end
    beginning: Beginning | None = None  # the last one, whether it has ended or not
    recompile: Recompile | None = None  # the same
    lookup: str | None = None  # ``hit`` or ``miss`` in a compile cache, of what compiles now
    # when the span of clean steps began that is not over, and the steps by then
    warm_since: tuple[int, int] | None = None
    functions: tuple[FunctionCost, ...] = ()
    slowed: LongStep | None = None  # the first of the last ten or more long steps in a row
    exception: str | None = None  # type of the exception that ended the process
    raised: Place | None = None  # the user's frame nearest to where it was raised
    refusal: str | None = None  # what compiled code refused, a key of ``REFUSALS``
    broken_lines: int = 0  # journal lines that were torn
    # Of the journal, left to the next polls: until then sums and lists of its lines are incomplete.
    unread_bytes: int = 0
    skipped_bytes: int = 0  # of the journal, never read
    workers: WorkerCompilations | None = None  # of its DataLoaders; ``None`` if none has compiled
    this_boot: bool = True  # its times are of this machine's boot
    outside: Outside | None = None  # what ``slot`` has of builds that only the process tree shows

    @property
    def start(self) -> tuple[str, int]:
        """Which start of its run the record belongs to."""
        return self.slot.identity.launch, self.slot.identity.attempt

    @property
    def began(self) -> tuple[bool, int]:
        """Sort key by begin. The wall clock, which can be set back, counts only for other boots."""
        header = self.slot.header
        return self.this_boot, header.attached_ns if self.this_boot else header.attached_epoch_ns

    @property
    def may_have_history(self) -> bool:
        """Whether an earlier daemon may have seen more: its end, or a build in a long step."""
        return bool(self.long_steps) or not (self.alive or self.death or self.slot.compile.end_code)

    def with_death(self, death: Death) -> RecordReading:
        """The same of a process that wrote no exit status, and ended like this."""
        slot = self.slot
        if not death.signal:
            slot = slot._replace(compile=with_exit_code(slot.compile, death.exit_code))
        return replace(self, death=death, slot=slot, gone_ns=self.gone_ns or death.at_ns)


def owned(
    readings: Iterable[RecordReading], gpus: Iterable[GpuReading]
) -> dict[str, tuple[GpuReading, ...]]:
    """By record, the devices that its rank reports, of those that are known here.

    A uuid counts with and without its prefix, which differs between CUDA and NVML.
    """
    devices: dict[str, GpuReading] = {}
    for gpu in gpus:
        devices[gpu.uuid] = gpu
        devices.setdefault(_bare(gpu.uuid), gpu)

    def used(reading: RecordReading) -> tuple[GpuReading, ...]:
        uuids = reading.slot.identity.gpus
        listed = (devices.get(uuid) or devices.get(_bare(uuid)) for uuid in uuids)
        return tuple(gpu for gpu in listed if gpu is not None)

    return {reading.folder: used(reading) for reading in readings}


def _bare(uuid: str) -> str:
    return uuid.removeprefix("MIG-").removeprefix("GPU-")
