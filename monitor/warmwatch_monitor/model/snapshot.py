"""The Snapshot: runs, ranks, GPUs and sources, joined and judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import is_
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct, field
from msgspec.structs import replace

from warmwatch.shared.states import ENDED, WARM, State
from warmwatch_monitor.figures.compile import Energy, Estimate
from warmwatch_monitor.figures.declared import figure
from warmwatch_monitor.figures.machine import ExportHealth, Host, Refusal, SourceHealth
from warmwatch_monitor.figures.rank import (
    LimitedBy,
    MemoryGrowth,
    Slower,
    SlowerPeriod,
    WorkersMemory,
)
from warmwatch_monitor.model.machine import GpuReading, ObservedTraining, ProcessReading

if TYPE_CHECKING:
    from warmwatch.shared.verdict import Judgement
    from warmwatch_monitor.model.figures import Figures, Stretch, Utilization, Who
    from warmwatch_monitor.model.records import RecordReading


class Spending(Struct, frozen=True, kw_only=True):
    """What a rank's GPUs spent since this monitor first saw the rank; nothing before is guessed.

    Attributes:
        compile_joules: while it compiled. compile_seconds: the compile time that this covers, which
        is less than all of it if the monitor started late.
        clean_joules: for clean_steps clean steps, each GPU of several counting for its share.
    """

    compile_joules: float = 0.0
    compile_seconds: float = 0.0
    clean_joules: float = 0.0
    clean_steps: float = 0.0


class RankView(Struct, frozen=True, kw_only=True):
    """One rank: figures and verdict, with the readings of its process and its GPUs.

    Attributes:
        figures, judgement: its figures, and the verdict from them.
        process: ``None`` if this host does not see it.
        gpus: the readings of those devices in ``figures.who.reported_gpus`` that NVML lists here.
        spending: ``None`` where no energy was measured.
        reading: the record that it was made from, for state that spans polls;
        exports and views never read it, and a rank on another host has none.
        compiling_child: the run of a child process that compiles; ``None`` without one.
        working_ns: when its process or its GPUs were last seen to work, 0 where they never were.
        idle_seconds: for how long its process, its compilers and its GPUs have all been idle;
        ``None`` if not known.
        estimate: how long its compilation may still take; ``None`` without a comparable one.
        slower: how it is slower than it was since its warm-up; ``None`` where it is not.
        memory_growth, workers_memory: of the conditions ``memory_growing``, ``workers_memory``.
        slower_periods: the last times in which it was, of an ended rank too.
        limited_by: what limits its speed while it is warm or eager, and of an ended rank when it
        last was; ``None`` if not known.
        oom_killed: of a lost rank, whether the OOM killer ended it; ``None`` if not known.
    """

    figures: Figures
    judgement: Judgement
    process: ProcessReading | None = None
    gpus: tuple[GpuReading, ...] = ()
    spending: Spending | None = None
    reading: RecordReading | None = None
    compiling_child: str | None = None
    working_ns: int = 0
    idle_seconds: float | None = None
    estimate: Estimate | None = None
    oom_killed: bool | None = None
    slower: Slower | None = None
    slower_periods: tuple[SlowerPeriod, ...] = ()
    limited_by: LimitedBy | None = None
    memory_growth: MemoryGrowth | None = None
    workers_memory: WorkersMemory | None = None

    @property
    def record(self) -> RecordReading:
        """The record that it was made from; every rank of this host has one."""
        assert self.reading is not None, "a rank of another host has no record here"
        return self.reading

    @property
    def run(self) -> str:
        return self.figures.who.run

    @property
    def rank(self) -> int:
        return self.figures.who.rank

    @property
    def living(self) -> bool:
        return self.judgement.state not in ENDED

    @property
    def stopped(self) -> bool:
        """Whether its process is stopped or frozen, as far as this host sees it."""
        return self.process is not None and self.process.stopped

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """Its GPUs as NVML spells them, else as CUDA does."""
        if len(self.gpus) == len(self.figures.who.reported_gpus):
            return tuple(gpu.uuid for gpu in self.gpus)
        return self.figures.who.reported_gpus

    @property
    def utilization(self) -> Utilization | None:
        """MFU at its recent speed; ``None`` if work per step or the peak of its GPUs is not known.

        A MIG device is a part of a GPU; its share of the peak is not known.
        """
        if len(self.gpus) != len(self.figures.who.reported_gpus):
            return None
        from warmwatch_monitor.model.figures import utilization  # loaded with the first record

        names = [None if gpu.parent else gpu.name for gpu in self.gpus]
        return utilization(self.figures.worth, self.figures.steps.length, names)

    @property
    def end(self) -> str | None:
        """``failed``, ``lost``, or the end that it recorded; ``None`` if it lives or is unknown."""
        if self.living:
            return None
        state = self.judgement.state
        return self.figures.life.end if state is State.FINISHED else str(state.value)

    @property
    def compile_gpu_seconds(self) -> float | None:
        """Compile time times the number of its GPUs; ``None`` if it reported no GPU."""
        gpus = len(self.figures.who.reported_gpus)
        return self.figures.compile.seconds * gpus if gpus else None

    @property
    def energy(self) -> Energy | None:
        """What its GPUs spent; ``None`` where no energy was measured."""
        spent = self.spending
        if spent is None:
            return None
        unseen = self.figures.compile.begun and not spent.compile_seconds
        return Energy(
            compile_joules=None if unseen else spent.compile_joules,
            covered_seconds=spent.compile_seconds,
            joules_per_clean_step=spent.clean_joules / spent.clean_steps
            if spent.clean_steps
            else None,
        )


def limit_of(ranks: Mapping[int, LimitedBy | None]) -> LimitedBy | None:
    """What limits a run of these ranks: of the rank that the others wait for, else of most ranks.

    The evidence has how many ranks that is, or which one; ``None`` if no rank has a limit.
    """
    counts = Counter(limited_by.verdict for limited_by in ranks.values() if limited_by is not None)
    # ranks that only wait in collectives are no cause
    waiting = counts.pop("communication", 0) if len(counts) > 1 else 0
    most = max(counts, key=lambda verdict: counts[verdict], default=None)
    shown = {
        rank: limited_by
        for rank, limited_by in ranks.items()
        if limited_by and limited_by.verdict == most
    }
    if not shown:
        return None
    rank, limit = max(shown.items(), key=lambda item: item[1].share or 0.0)
    if waiting or len(shown) == len(ranks):
        return limit
    share = () if limit.share is None else (f"{100 * limit.share:.0f} % of the time",)
    which = f"rank {rank} of {len(ranks)}" if len(shown) == 1 else f"{len(shown)} of {len(ranks)}"
    return replace(limit, evidence=(*(limit.evidence or share), f"in {which} ranks"))


class RunView(Struct, frozen=True, kw_only=True):
    """One run: its ranks in order, and its state, that of its least advanced living rank.

    ``ended_together``: whether all its ranks here ended within seconds, as in a cancelled job.
    ``False`` if only some of them are gone. ``None`` if none is gone, if the times are not known,
    and for a single rank.
    ``failed_starts``: those just before this one that all failed or were lost, the latest last.
    """

    run: str
    state: State
    ranks: tuple[RankView, ...]
    ended_together: bool | None = None
    failed_starts: tuple[RunView, ...] = ()

    @property
    def who(self) -> Who:
        """Identity of the run: its name and owner, the same for all its ranks."""
        return self.ranks[0].figures.who

    @property
    def attached_at(self) -> float | None:
        """When the latest of its ranks attached; ``None`` if that is not known for one of them."""
        values = [view.figures.who.attached_at for view in self.ranks]
        times = [at for at in values if at is not None]
        return max(times) if len(times) == len(values) else None

    @property
    def living(self) -> tuple[RankView, ...]:
        return tuple(view for view in self.ranks if view.living)

    @property
    def stretch(self) -> Stretch | None:
        """For how long it compiles, without a step; ``None`` if no rank compiles.

        Ranks compile in turns: one waits in a collective while another compiles. So the earliest
        begin of all ranks counts, whether they compile at this moment or not. Ranks that others
        have left behind by more than a step do not wait for each other.
        """
        living = self.living
        if not any(view.judgement.compiling for view in living):
            return None
        furthest = max(view.figures.steps.count for view in living)
        counted = [
            stretch
            for view in living
            if view.judgement.compiling or view.figures.steps.count >= furthest - 1
            if (stretch := view.figures.progress.stretch) is not None
        ]
        if not counted:
            return None
        values = [item.compiler_seconds for item in counted if item.compiler_seconds is not None]
        first = max(counted, key=lambda value: value.seconds)
        return replace(first, compiler_seconds=max(values, default=None))

    def with_ranks(self, ranks: Iterable[RankView]) -> RunView:
        """The run with these versions of its ranks; the same object if none of them changed."""
        ranks = tuple(ranks)
        return self if all(map(is_, ranks, self.ranks)) else replace(self, ranks=ranks)

    @property
    def limited_by(self) -> LimitedBy | None:
        """What limits it while it is warm or eager; ``None`` if not known."""
        if self.state not in WARM:
            return None
        return limit_of({view.rank: view.limited_by for view in self.living})

    @property
    def world_size(self) -> int | None:
        """Number of ranks by its launcher; ``None`` if not reported."""
        sizes = (view.figures.who.world_size for view in self.living)
        return max((size for size in sizes if size is not None), default=None)

    @property
    def missing_ranges(self) -> list[range]:
        """The ranks that the run has and that are not seen here, as consecutive ranges.

        None is where as many are seen as the user expects to have the agent. A record can claim any
        world size, so the cost depends on the ranks seen here alone.
        """
        expected = max((view.figures.who.expected_ranks or 0 for view in self.ranks), default=0)
        if expected and len({view.rank for view in self.ranks}) >= expected:
            return []
        size = self.world_size or 0
        seen = sorted({view.rank for view in self.ranks if view.rank < size})
        gaps = zip([-1, *seen], [*seen, size], strict=True)
        return [range(before + 1, after) for before, after in gaps if after - before > 1]


def incomplete(snapshot: Snapshot) -> str | None:
    """Why a run that is not in ``snapshot`` may still exist; ``None`` if it does not exist.

    A snapshot without a source of records, as of a fleet, is complete. So is one that leaves out
    only what users have beyond their own limits: no user can hide that another's run is unknown.
    """
    health = next((source for source in snapshot.sources if source.source == "records"), None)
    if health is not None and not health.up:
        return f"the records cannot be read: {health.error}"
    if left := snapshot.unread - snapshot.unread_beyond:
        return f"not all records have been read yet ({left} are left)"
    if snapshot.crowded:
        beyond = sum(snapshot.left_out.get(kind, 0) for kind in ("records", "ranks"))
        return f"more users have records than an answer has room for ({beyond} are left out)"
    return None


def why_left_out(snapshot: Snapshot, run: str, uid: int | None = None) -> str | None:
    """Why ``run`` may exist though it is not in ``snapshot``: its owner exceeds a limit.

    ``uid``: the user who requests it, if that is known. ``None``: it does not exist.
    """
    if uid in snapshot.left_out_uids:
        return "you have more records than an answer has room for"
    plain = run.rpartition("@")[0] if "@" in run else run
    owners = [owner for owner, name in snapshot.left_out_runs if name in (run, plain)]
    if owners:
        return f"user {owners[0]}, who has a run of that name, has more than an answer has room for"
    return None


def all_warm(runs: Iterable[RunView]) -> bool | None:
    """Whether every living rank is warm; ``None`` where none lives."""
    living = [view for run in runs for view in run.living]
    return all(view.judgement.warm for view in living) if living else None


def any_compiling(runs: Iterable[RunView]) -> bool | None:
    """Whether any living rank has compile activity now; ``None`` where none lives."""
    living = [view for run in runs for view in run.living]
    return any(view.judgement.compiling for view in living) if living else None


class RecordRoom(Struct, frozen=True, kw_only=True):
    """What is free in a record directory; ``None`` where its file system has no limit."""

    directory: str
    free_bytes: Annotated[int | None, figure("record_directory_free_bytes")]
    """What is free for records in a record directory; 0 if its file system is read-only."""
    free_inodes: Annotated[int | None, figure("record_directory_free_inodes")]
    """How many more files a record directory takes; a record has up to five."""
    identity: str
    """The same for all who read this directory of this boot, whatever its path is in their mount
    namespace."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """All that was known at one moment, on both clocks. Runs are in order of their names.

    ``earlier_starts``: ended starts of ``runs`` that are not the latest, for the history.
    ``more_refusals`` is how many there are beyond ``refusals``. ``unread``: how many records were
    not read yet, ``unread_beyond`` of them of users who exceed a limit. ``left_out_runs``: uid and
    name of runs that were read and are left out. ``left_out``: what is beyond a budget now, by kind
    (``budgets.LEFT_OUT``), and ``left_out_total`` how much of it ever was. ``left_out_uids``: the
    users who own it.
    ``crowded``: whether it is left out for the total, of users within their own limits.
    ``late_seconds`` is its age where a Snapshot is older than it should be when it is requested,
    else ``None``.
    ``rooms``: what is free in each record directory.
    ``awaited``: whether the daemon was started with a command of which no process has a record yet.
    """

    epoch: float
    now_ns: int
    runs: tuple[RunView, ...] = ()
    earlier_starts: tuple[RunView, ...] = ()
    gpus: tuple[GpuReading, ...] = ()
    observed: tuple[ObservedTraining, ...] = ()
    host: Host | None = None
    refusals: tuple[Refusal, ...] = ()
    more_refusals: int = 0
    unread: int = 0
    unread_beyond: int = 0
    left_out_runs: frozenset[tuple[int, str]] = frozenset()
    left_out: Mapping[str, int] = field(default_factory=dict)
    left_out_total: Mapping[str, int] = field(default_factory=dict)
    left_out_uids: frozenset[int] = frozenset()
    crowded: bool = False
    sources: tuple[SourceHealth, ...] = ()
    exports: tuple[ExportHealth, ...] = ()
    directories: tuple[str, ...] = ()
    rooms: tuple[RecordRoom, ...] = ()
    late_seconds: float | None = None
    awaited: bool = False

    @property
    def starts(self) -> tuple[RunView, ...]:
        """All that is known: ``runs``, then ``earlier_starts``."""
        return (*self.runs, *self.earlier_starts)
