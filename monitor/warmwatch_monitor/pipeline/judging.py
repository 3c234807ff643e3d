"""From records to runs: judge, add up energy, find what limits the speed, estimate the time left.

Each step runs in isolation. A record that cannot be judged becomes one refusal. A step that raises
leaves its part out and is reported as a problem.

Below: :class:`Analysis` with the order of the steps, :class:`Judging` with the state of the records
between two polls, the work of a rank.

Loaded with the first record: a host without records needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from warmwatch.shared.states import State
from warmwatch.shared.verdict import LONG_COMPILE_NS
from warmwatch_monitor.base.errors import described
from warmwatch_monitor.base.settings import Settings
from warmwatch_monitor.figures.machine import Host, Refusal
from warmwatch_monitor.figures.rank import MemoryGrowth, Slower
from warmwatch_monitor.model.causes import surroundings_of
from warmwatch_monitor.model.figures import RankHistory
from warmwatch_monitor.model.machine import (
    IDLE_RATIO,
    LOW_POWER_RATIO,
    WORKING_RATIO,
    GpuReading,
    ProcessReading,
)
from warmwatch_monitor.model.records import RecordReading, is_present, owned
from warmwatch_monitor.model.snapshot import RankView, RunView
from warmwatch_monitor.pipeline import memory, slowdown
from warmwatch_monitor.pipeline.energy import EnergyUsed, charge, retained
from warmwatch_monitor.pipeline.estimates import with_estimates
from warmwatch_monitor.pipeline.figures import cached_figures, forget_gone
from warmwatch_monitor.pipeline.limits import Windows, with_limits
from warmwatch_monitor.pipeline.outside import OutsideActivity
from warmwatch_monitor.pipeline.runs import (
    Circumstances,
    compiling_children,
    earlier_starts,
    group,
    numbered_conflicts,
)

if TYPE_CHECKING:
    from warmwatch_monitor.sources.host import HostAndProcesses

T = TypeVar("T")

_SHORTEST_RETENTION = 60.0
_NOTHING: tuple[tuple[RunView, ...], tuple[Refusal, ...]] = ((), ())


class Analysed(Struct, frozen=True, kw_only=True):
    """The runs, the records that cannot be judged, and the problems, one sentence each.

    ``earlier``: ended starts of ``runs`` that are not the latest.
    """

    runs: tuple[RunView, ...] = ()
    earlier: tuple[RunView, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    problems: tuple[str, ...] = ()


class Analysis:
    """Makes the runs of each Snapshot. Holds the state that spans several of them."""

    def __init__(self, settings: Settings) -> None:
        self._retention_ns = round(max(settings.retention, _SHORTEST_RETENTION) * 1e9)
        self._energy: dict[str, EnergyUsed] = {}
        self._windows: Windows = {}
        self._judging = Judging(round((settings.long_compile or 0.0) * 1e9))

    def of(
        self,
        records: Collection[RecordReading],
        present: Collection[str] | None,
        host: HostAndProcesses | None,
        gpus: tuple[GpuReading, ...],
        histories: Mapping[str, RankHistory],
        now_ns: int,
        read_ns: int,
    ) -> Analysed:
        """The runs at ``now_ns``, from records that were read at ``read_ns``.

        ``present`` as for ``is_present``.
        """
        isolated = _IsolatedSteps()
        others = OtherReadings(
            now_ns=now_ns,
            read_ns=read_ns,
            processes=host.processes if host else {},
            gpus=gpus,
            host=host.machine if host else None,
            oom_killed=host.oom_killed if host else {},
            histories=histories,
        )
        runs, unjudged = isolated.run(
            "judging the runs", partial(self._judging.of, records, others, present), _NOTHING
        )
        energy = retained(self._energy, present, now_ns, self._retention_ns)
        self._energy, runs = isolated.run(
            "adding up energy", partial(charge, energy, runs, now_ns), (energy, runs)
        )
        judged = {view.record.folder for run in runs for view in run.ranks}
        unread = {key: window for key, window in self._windows.items() if key not in judged}
        windows, runs = isolated.run(
            "judging what limits the speed",
            partial(with_limits, runs, self._windows, others.host, now_ns),
            (self._windows, runs),
        )
        self._windows = _existing({**unread, **windows}, present)
        runs = isolated.run(
            "estimating the time left", partial(with_estimates, runs, now_ns, histories), runs
        )
        return Analysed(
            runs=runs,
            earlier=self._judging.earlier,
            refusals=unjudged,
            problems=tuple(isolated.problems),
        )


class _IsolatedSteps:
    """Runs the steps of one analysis, each in isolation, and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def run(self, what: str, step: Callable[[], T], default: T) -> T:
        """The result of ``step``; ``default`` if it raises."""
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - a failing step is a fact to show, not the end
            self.problems.append(f"{what}: {described(error)}")
            return default


class OtherReadings(Struct, frozen=True, kw_only=True):
    """Readings of the other sources at ``now_ns``. ``read_ns``: when the records were read.

    ``oom_killed``: by pid of a process that is gone. ``histories``: by record.
    """

    now_ns: int
    read_ns: int | None = None
    processes: Mapping[int, ProcessReading] = field(default_factory=dict)
    gpus: tuple[GpuReading, ...] = ()
    host: Host | None = None
    oom_killed: Mapping[int, bool] = field(default_factory=dict)
    histories: Mapping[str, RankHistory] = field(default_factory=dict)


class _Followed(Struct, frozen=True, kw_only=True):
    """The state of one record between two polls."""

    work: Work
    speed: slowdown.Speed
    memory: memory.MemoryHistory | None  # of a rank that was seen alive
    growth: MemoryGrowth | None = None


class _Judged(Struct, frozen=True, kw_only=True):
    """The runs, and the state for the next poll."""

    runs: tuple[RunView, ...]
    earlier: tuple[RunView, ...]
    followed: Mapping[str, _Followed]
    names: Mapping[str, str]


class Judging:
    """Judges the records of each poll; see ``Facts`` for ``long_compile_ns``.

    ``earlier``: ended starts of the last poll's runs that are not the latest.
    """

    def __init__(self, long_compile_ns: int = LONG_COMPILE_NS) -> None:
        self._long_compile_ns = long_compile_ns
        self._followed: Mapping[str, _Followed] = {}
        self._names: Mapping[str, str] = {}
        self._pids: Mapping[str, int] = {}
        self.earlier: tuple[RunView, ...] = ()
        self._outside = OutsideActivity()

    def of(
        self,
        records: Collection[RecordReading],
        others: OtherReadings,
        present: Collection[str] | None,
    ) -> tuple[tuple[RunView, ...], tuple[Refusal, ...]]:
        """The runs, and the records that cannot be judged.

        ``present`` as for ``is_present``: the state of a record that may exist is preserved.
        """
        records = [_with_death(record, others.histories.get(record.folder)) for record in records]
        judged, refused = self._judge_all(records, others)
        forget_gone(present)
        self._outside.keep(present)
        self._names = _existing({**self._names, **judged.names}, present)
        self._followed = _existing({**self._followed, **judged.followed}, present)
        self.earlier = judged.earlier
        return self._with_oom_kills(judged.runs, others.oom_killed), refused

    def _judge_all(
        self, records: Collection[RecordReading], others: OtherReadings
    ) -> tuple[_Judged, tuple[Refusal, ...]]:
        """Judge all records; if that raises, leave out those that raise alone."""
        try:
            return self._judge(records, others), ()
        except Exception:  # noqa: BLE001 - judge each record alone to find the cause
            good, refused = [], []
        for record in records:
            try:
                self._judge([record], others)
            except Exception as error:  # noqa: BLE001 - one bad record is one refusal
                reason = f"it cannot be judged: {described(error)}"
                refused.append(Refusal(path=record.folder, reason=reason))
            else:
                good.append(record)
        return self._judge(good, others), tuple(refused)

    def _judge(self, records: Collection[RecordReading], others: OtherReadings) -> _Judged:
        """Changes no state for the next poll, so that a caller can discard it if it raises."""
        records = self._outside.of(
            records,
            others.processes,
            others.gpus,
            others.now_ns,
            others.read_ns,
            others.histories,
        )
        records, names = numbered_conflicts(records, self._names)
        used = owned(records, others.gpus)
        followed = {
            record.folder: self._follow(record, used[record.folder], others) for record in records
        }
        circumstances = Circumstances(
            now_ns=others.now_ns,
            read_ns=others.read_ns,
            processes=others.processes,
            gpus=used,
            working={folder: state.work.working_ns for folder, state in followed.items()},
            busy={folder: state.work.busy_ns for folder, state in followed.items()},
            measured={folder for folder, state in followed.items() if state.work.measured},
            long_compile_ns=self._long_compile_ns,
            earlier={
                folder: tuple(round(seconds * 1e9) for seconds in history.warmup_seconds)
                for folder, history in others.histories.items()
            },
            slower=_slower(records, followed),
            slowing=_slowing(records, followed),
            growing={folder: state.growth for folder, state in followed.items() if state.growth},
            children=compiling_children(records),
        )
        runs = group(records, circumstances)
        earlier = earlier_starts(records, runs, circumstances, self.earlier)
        return _Judged(
            runs=_with_failed_starts(_with_periods(runs, followed), earlier),
            earlier=_with_periods(earlier, followed),
            followed=followed,
            names=names,
        )

    def _follow(
        self, reading: RecordReading, gpus: tuple[GpuReading, ...], others: OtherReadings
    ) -> _Followed:
        """The state of ``reading`` after this poll."""
        before = self._followed.get(reading.folder)
        process = None if reading.pid is None else others.processes.get(reading.pid)
        history = before.memory if before else None
        if reading.pid is not None:
            history = memory.follow(history, reading.slot, others.now_ns, process, gpus)
        return _Followed(
            work=follow_work(
                before.work if before else Work(),
                process,
                gpus,
                others.now_ns,
                uses_gpus=bool(reading.slot.identity.gpus),
                loads=not reading.slot.steps.steps,
            ),
            # an ended record has steps that no poll saw: its surroundings now do not explain them
            speed=slowdown.follow(
                before.speed if before else None,
                reading.slot,
                partial(surroundings_of, reading.slot, gpus, others.host)
                if reading.alive
                else None,
                reading.slowed,
            ),
            memory=history,
            growth=_growth(before, history, reading, gpus, others.host, process),
        )

    def _with_oom_kills(
        self, runs: tuple[RunView, ...], oom_killed: Mapping[int, bool]
    ) -> tuple[RunView, ...]:
        """``runs``, with OOM kills of lost ranks. The record of a dead process has no pid."""
        readings = [view.record for run in runs for view in run.ranks]
        self._pids = {
            **{folder: pid for folder, pid in self._pids.items() if folder in self._followed},
            **{reading.folder: reading.pid for reading in readings if reading.pid is not None},
        }
        return tuple(
            run.with_ranks(self._with_oom_kill(view, oom_killed) for view in run.ranks)
            for run in runs
        )

    def _with_oom_kill(self, view: RankView, oom_killed: Mapping[int, bool]) -> RankView:
        if view.judgement.state is not State.LOST and view.figures.life.signal is None:
            return view
        death = view.record.death
        killed = oom_killed.get(self._pids.get(view.record.folder, 0))
        if killed is None and death is not None:
            killed = death.out_of_memory
        return view if killed is None else replace(view, oom_killed=killed)


def _existing(states: Mapping[str, T], present: Collection[str] | None) -> Mapping[str, T]:
    """Those of ``states`` whose record may exist; ``present`` as for ``is_present``."""
    return {folder: state for folder, state in states.items() if is_present(folder, present)}


def _with_death(reading: RecordReading, history: RankHistory | None) -> RecordReading:
    """``reading``, with its death and end if an earlier daemon saw them."""
    if history is None or history.death is None or reading.alive or reading.death:
        return reading
    return reading.with_death(history.death)


def _growth(
    before: _Followed | None,
    history: memory.MemoryHistory | None,
    reading: RecordReading,
    gpus: tuple[GpuReading, ...],
    host: Host | None,
    process: ProcessReading | None,
) -> MemoryGrowth | None:
    """How the memory of ``reading`` grows. The rate changes only with its history."""
    if history is None:
        return None
    growth = before.growth if before else None
    left_bytes = memory.left_on_host(host, process)
    if before and before.memory and history.buckets is before.memory.buckets:
        return memory.with_left(growth, left_bytes, gpus) if growth else None
    return memory.growth(history, left_bytes, gpus, reading.compilations, growth)


def _with_failed_starts(runs: Iterable[RunView], earlier: Iterable[RunView]) -> tuple[RunView, ...]:
    failed: dict[str, tuple[RunView, ...]] = {}
    for start in sorted(earlier, key=lambda start: start.attached_at or 0.0):
        kept = start.state in (State.FAILED, State.LOST)
        failed[start.run] = (*failed.get(start.run, ()), start) if kept else ()
    return tuple(
        replace(run, failed_starts=starts) if (starts := failed.get(run.run)) else run
        for run in runs
    )


def _with_periods(
    runs: Iterable[RunView], followed: Mapping[str, _Followed]
) -> tuple[RunView, ...]:
    return tuple(
        run.with_ranks(_rank_with_periods(view, followed) for view in run.ranks) for run in runs
    )


def _rank_with_periods(view: RankView, followed: Mapping[str, _Followed]) -> RankView:
    record = view.record
    state = followed.get(record.folder)  # ``None`` of an earlier start that was judged before
    if state is None or not state.speed.periods:
        return view
    periods = slowdown.slower_periods(state.speed, record.slot.header, ended=not view.living)
    return replace(view, slower_periods=periods)


def _slower(
    records: Iterable[RecordReading], followed: Mapping[str, _Followed]
) -> dict[str, Slower]:
    """How a rank is slower than before, by record; ranks that are not slower are absent."""
    ranks = {
        record.folder: slowdown.slower(
            followed[record.folder].speed, cached_figures(record).steps.recent
        )
        for record in records
    }
    return {folder: slower for folder, slower in ranks.items() if slower is not None}


def _slowing(records: Iterable[RecordReading], followed: Mapping[str, _Followed]) -> frozenset[str]:
    """The records whose ranks have just become slower: their speed is not settled."""
    return frozenset(
        record.folder
        for record in records
        if slowdown.is_slowing(followed[record.folder].speed, cached_figures(record).steps.recent)
    )


_LOADED = 16 << 20  # bytes: far more than a process that waits allocates


class Work(Struct, frozen=True, kw_only=True):
    """Activity of one rank; 0 if it was never seen."""

    working_ns: int = 0  # when it was last seen to work
    # When any of its processes or GPUs was last busy, or readings were missing: in a hung
    # compilation nothing is busy.
    busy_ns: int = 0
    measured: bool = False  # whether the last readings show that it works, or that it does not
    # of its process at the last reading: an equal value is not a new reading
    cpu_seconds: float | None = None
    loaded_bytes: int = 0  # resident at the first reading, or the last sign that it loads


def follow_work(
    work: Work,
    process: ProcessReading | None,
    gpus: Sequence[GpuReading],
    now_ns: int,
    *,
    uses_gpus: bool,
    loads: bool = False,
) -> Work:
    """When a rank last worked, with or without steps: an evaluation does.

    - A GPU that runs kernels at least half of the time works, unless its power is low. Full
      utilization at low power is a collective that spins. Then nothing else counts: the process
      that waits for it may spin as well.
    - If its GPUs are idle, or it has none, a process works if it, or all processes below it,
      use at least half a core: workers may prepare its data. Before the first step also if its
      memory grows: a slow disk delivers a checkpoint or a dataset.
    - Missing readings prove nothing: without those of its GPUs, the process alone does not
      show whether the rank works or waits.

    ``work``: as of the last poll. ``uses_gpus``: whether the rank reports GPUs. ``loads``: it has
    made no step.
    """
    busy = [gpu for gpu in gpus if (gpu.utilization_ratio or 0.0) >= WORKING_RATIO]
    computing = [gpu.at_ns for gpu in busy if not _spins(gpu)]
    gpus_read = bool(gpus or not uses_gpus) and all(
        gpu.utilization_ratio is not None for gpu in gpus
    )
    moment, loaded_bytes = 0, work.loaded_bytes
    if loads and process is not None and abs(process.resident_bytes - loaded_bytes) >= _LOADED:
        loaded_bytes = process.resident_bytes
    if computing:
        moment = max(computing)
    elif not busy and gpus_read and process is not None:
        is_new = process.cpu_seconds != work.cpu_seconds
        ratio = max(is_new * (process.cpu_ratio or 0.0), process.below_cpu_ratio or 0.0)
        works = ratio >= WORKING_RATIO or 0 < work.loaded_bytes < loaded_bytes
        moment = now_ns if works else 0
    working_ns = max(work.working_ns, min(moment, now_ns))
    cpu_seconds = work.cpu_seconds if process is None else process.cpu_seconds
    busy_ns = work.busy_ns if gpus_read and _is_idle(process, gpus) else now_ns
    measured = gpus_read and process is not None and process.cpu_ratio is not None
    after = Work(
        working_ns=working_ns,
        cpu_seconds=cpu_seconds,
        busy_ns=busy_ns,
        measured=measured,
        loaded_bytes=loaded_bytes,
    )
    return work if after == work else after


def _is_idle(process: ProcessReading | None, gpus: Sequence[GpuReading]) -> bool:
    """Whether process, workers, compilers and ``gpus`` are all known and idle."""
    if process is None or process.cpu_ratio is None or process.workers_busy is None:
        return False
    helpers_busy = process.workers_busy or any(
        compiler.busy is not False for compiler in process.compilers
    )
    if helpers_busy or process.cpu_ratio >= IDLE_RATIO:
        return False
    return all(
        gpu.utilization_ratio is not None and gpu.utilization_ratio < IDLE_RATIO for gpu in gpus
    )


def _spins(gpu: GpuReading) -> bool:
    """Whether its power is so low that its kernels only wait; ``False`` if not known."""
    if gpu.power_watts is None or not gpu.power_limit_watts:
        return False
    return gpu.power_watts < LOW_POWER_RATIO * gpu.power_limit_watts
