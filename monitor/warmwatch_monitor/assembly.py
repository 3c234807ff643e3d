"""The assembly: what the sources read last, joined and judged, and what of it is remembered.

Each step is tried apart. One record that cannot be judged is one refusal; a step that raises leaves
its part out and is named as a problem; the rest is published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from warmwatch.verdict import State
from warmwatch_monitor.config import Settings
from warmwatch_monitor.errors import described
from warmwatch_monitor.model import (
    GpuReading,
    ProcessReading,
    RankView,
    RecordReading,
    Refusal,
    RunView,
    Snapshot,
    SourceHealth,
)
from warmwatch_monitor.namesakes import Start, told_apart
from warmwatch_monitor.runs import group, owned
from warmwatch_monitor.sources.listed import HOST, NVML, OBSERVED, RECORDS
from warmwatch_monitor.sources.readings import Readings
from warmwatch_monitor.spending import Account, charge, is_present, kept
from warmwatch_monitor.work import Work, follow

if TYPE_CHECKING:
    from warmwatch_monitor.sources.records import RecordsReading

T = TypeVar("T")

Judge = Callable[[Iterable[RecordReading]], "Judged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The runs, what is remembered of them for the next look, and what could not be judged."""

    runs: tuple[RunView, ...] = ()
    works: Mapping[str, Work] = field(default_factory=dict)
    names: Mapping[Start, str] = field(default_factory=dict)
    refused: tuple[Refusal, ...] = ()


# Thousands of stray files must not make /status megabytes long.
REFUSALS_OF_A_KIND, REFUSALS = 20, 100
_SHORTEST_RETENTION = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A Snapshot, and what of its making failed, one sentence each."""

    snapshot: Snapshot
    problems: tuple[str, ...] = ()


class Assembly:
    """Makes Snapshots; remembers what spans several of them."""

    def __init__(self, settings: Settings) -> None:
        self._directories = settings.directories
        self._retention_ns = round(max(settings.retention, _SHORTEST_RETENTION) * 1e9)
        self._accounts: dict[str, Account] = {}
        self._works: Mapping[str, Work] = {}
        self._pids: dict[str, int] = {}
        self._names: Mapping[Start, str] = {}

    def make(
        self, readings: Readings, health: tuple[SourceHealth, ...], now_ns: int, epoch: float
    ) -> Assembled:
        """All of it as it is at ``now_ns``."""
        trial = _Trial()
        host, gpus = readings.of(HOST), readings.of(NVML) or ()
        found = readings.of(RECORDS)
        records, refused = (found.records, found.refusals) if found else ((), ())
        processes = host.processes if host else {}
        judged = trial.of(
            "judging the runs",
            lambda: _all_judged(records, lambda some: self._judge(some, processes, gpus, now_ns)),
            Judged(works=self._works, names=self._names),
        )
        runs = self._with_ooms(judged.runs, host.oom_killed if host else {})
        present = None if found is None else _present(found)
        if found is not None:
            self._names = judged.names
        self._works = {
            folder: work for folder, work in judged.works.items() if is_present(folder, present)
        }
        before = kept(self._accounts, present, now_ns, self._retention_ns), runs
        self._accounts, runs = trial.of("adding up energy", lambda: charge(*before, now_ns), before)
        refusals = (*judged.refused, *refused)
        shown = bounded(refusals)
        snapshot = Snapshot(
            epoch=epoch,
            now_ns=now_ns,
            runs=runs,
            refusals=shown,
            more_refusals=len(refusals) - len(shown),
            gpus=gpus,
            observed=readings.of(OBSERVED) or (),
            host=host.machine if host else None,
            sources=health,
            directories=self._directories,
        )
        return Assembled(snapshot=snapshot, problems=tuple(trial.problems))

    def _with_ooms(
        self, runs: tuple[RunView, ...], killed: Mapping[int, bool]
    ) -> tuple[RunView, ...]:
        """``runs``, with what is known of how the lost ranks went. A dead record has no pid."""
        self._pids = {
            folder: pid for folder, pid in self._pids.items() if folder in self._works
        } | {
            view.record.folder: view.record.pid
            for run in runs
            for view in run.ranks
            if view.record.pid is not None
        }
        return tuple(
            replace(run, ranks=tuple(self._with_oom(view, killed) for view in run.ranks))
            for run in runs
        )

    def _with_oom(self, view: RankView, killed: Mapping[int, bool]) -> RankView:
        if view.judgement.state is not State.LOST:
            return view
        known = killed.get(self._pids.get(view.record.folder, 0))
        return view if known is None else replace(view, oom_killed=known)

    def _judge(
        self,
        records: Iterable[RecordReading],
        processes: Mapping[int, ProcessReading],
        gpus: tuple[GpuReading, ...],
        now_ns: int,
    ) -> Judged:
        works = dict(self._works)
        records, names = told_apart(records, self._names)
        used = owned(records, gpus)
        for one in records:
            works[one.folder] = follow(
                works.get(one.folder, Work()),
                None if one.pid is None else processes.get(one.pid),
                used[one.folder],
                now_ns,
                uses_gpus=bool(one.slot.identity.gpus),
            )
        working = {folder: work.working_ns for folder, work in works.items()}
        runs = group(records, processes, now_ns, gpus, working)
        return Judged(runs=runs, works=works, names=names)


class _Trial:
    """Steps of one assembly, and what went wrong in them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def of(self, what: str, step: Callable[[], T], otherwise: T) -> T:
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - a failing step is a fact to show, not the end
            self.problems.append(f"{what}: {described(error)}")
            return otherwise


def _all_judged(records: tuple[RecordReading, ...], judge: Judge) -> Judged:
    """The runs, without the records that cannot be judged; those are refused."""
    try:
        return judge(records)
    except Exception:  # noqa: BLE001 - whose fault it is, each record alone will tell
        good, refused = [], []
    for one in records:
        try:
            judge([one])
        except Exception as error:  # noqa: BLE001 - one bad record is one refusal
            reason = f"it cannot be judged: {described(error)}"
            refused.append(Refusal(path=one.folder, reason=reason))
        else:
            good.append(one)
    return replace(judge(good), refused=tuple(refused))


def _present(found: RecordsReading) -> set[str]:
    """Folders of records that are there, the unreadable ones too, and unreadable directories."""
    folders = {record.folder for record in found.records}
    return folders | {refusal.path for refusal in found.refusals}


def bounded(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """The first of each kind, and of all of them, so that many of one kind hide no other."""
    shown: list[Refusal] = []
    kinds: Counter[str] = Counter()
    for refusal in refusals:
        kinds[refusal.reason] += 1
        if kinds[refusal.reason] <= REFUSALS_OF_A_KIND and len(shown) < REFUSALS:
            shown.append(refusal)
    return tuple(shown)
