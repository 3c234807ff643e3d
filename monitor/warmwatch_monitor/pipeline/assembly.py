"""Combines the latest readings into one Snapshot: join, judge, estimate, account energy.

Each step runs in isolation. A record that cannot be judged becomes one refusal. A step that raises
leaves its part out and is reported as a problem; the rest is published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from warmwatch_monitor.errors import described
from warmwatch_monitor.model import (
    GpuReading,
    RankHistory,
    Refusal,
    RunView,
    Snapshot,
    SourceHealth,
)
from warmwatch_monitor.model.budgets import LEFT_OUT
from warmwatch_monitor.pipeline.energy import EnergyUsed, charge, retained
from warmwatch_monitor.pipeline.estimates import with_estimates
from warmwatch_monitor.pipeline.judging import Around, Judging
from warmwatch_monitor.pipeline.limits import Windows, with_limits
from warmwatch_monitor.settings import Settings
from warmwatch_monitor.sources.listed import HOST, NVML, OBSERVED, RECORDS, Readings

if TYPE_CHECKING:
    from warmwatch_monitor.sources.host import HostAndProcesses
    from warmwatch_monitor.sources.records.source import RecordsReading

T = TypeVar("T")

# Thousands of stray files must not make /status megabytes long.
REFUSALS_OF_A_KIND, REFUSALS = 20, 100
_SHORTEST_RETENTION = 60.0
_NOTHING: tuple[tuple[RunView, ...], tuple[Refusal, ...]] = ((), ())


class Assembled(Struct, frozen=True, kw_only=True):
    """A Snapshot, and the problems while making it, one sentence each."""

    snapshot: Snapshot
    problems: tuple[str, ...] = ()


class Assembly:
    """Makes Snapshots. Holds the state that spans several of them."""

    def __init__(self, settings: Settings) -> None:
        self._directories = settings.directories
        self._awaits = settings.awaits
        self._retention_ns = round(max(settings.retention, _SHORTEST_RETENTION) * 1e9)
        self._accounts: dict[str, EnergyUsed] = {}
        self._windows: Windows = {}
        self._histories: Mapping[str, RankHistory] = {}
        self._left_out = self._left_out_total = dict.fromkeys(LEFT_OUT, 0)
        self._judging = Judging(round((settings.long_compile or 0.0) * 1e9))

    def make(
        self, readings: Readings, health: tuple[SourceHealth, ...], now_ns: int, epoch: float
    ) -> Assembled:
        """The Snapshot of these readings at ``now_ns``."""
        trial = _Trial()
        found, host = readings.of(RECORDS), readings.of(HOST)
        gpus = readings.of(NVML) or ()
        records, refused = (found.records, found.refusals) if found else ((), ())
        if any(one.slot.identity.started_by == self._awaits for one in records):
            self._awaits = None
        present = None if found is None else _present(found)
        known = self._latest_histories(readings)
        around = replace(_around(host, gpus, now_ns), histories=known)
        runs, unjudged = trial.of(
            "judging the runs", lambda: self._judging.of(records, around, present), _NOTHING
        )
        before = retained(self._accounts, present, now_ns, self._retention_ns), runs
        self._accounts, runs = trial.of("adding up energy", lambda: charge(*before, now_ns), before)
        loads = runs, self._windows, host.machine if host else None
        self._windows, runs = trial.of(
            "judging what limits the speed",
            lambda: with_limits(*loads, now_ns),
            (self._windows, runs),
        )
        judged = runs
        runs = trial.of(
            "estimating the time left", lambda: with_estimates(judged, now_ns, known), judged
        )
        refusals = (*unjudged, *refused)
        shown = bounded(refusals)
        unlisted = found.more_refusals if found else 0
        left_out = self._count_left_out(found, runs)
        snapshot = Snapshot(
            epoch=epoch,
            now_ns=now_ns,
            runs=runs,
            refusals=shown,
            more_refusals=len(refusals) - len(shown) + unlisted,
            unread=found.unread if found else 0,
            unread_beyond=found.unread_beyond if found else 0,
            left_out_runs=found.left_out_runs if found else frozenset(),
            left_out=left_out,
            left_out_total=self._left_out_total,
            left_out_uids=found.over if found else frozenset(),
            crowded=bool(found and found.crowded),
            gpus=gpus,
            observed=readings.of(OBSERVED) or (),
            host=host.machine if host else None,
            sources=health,
            directories=self._directories,
            awaited=self._awaits is not None,
        )
        return Assembled(snapshot=snapshot, problems=tuple(trial.problems))

    def _count_left_out(
        self, found: RecordsReading | None, runs: tuple[RunView, ...]
    ) -> Mapping[str, int]:
        """Count what is left out now. Increases since the last Snapshot add to the total."""
        views = [view for run in runs for view in run.ranks if view.living]
        unknown = sum(max(0, len(view.figures.who.gpus) - len(view.gpus)) for view in views)
        now = {**dict.fromkeys(LEFT_OUT, 0), **(found.left_out if found else {}), "gpus": unknown}
        self._left_out_total = {
            kind: self._left_out_total[kind] + max(0, count - self._left_out[kind])
            for kind, count in now.items()
        }
        self._left_out = now
        return now

    def _latest_histories(self, readings: Readings) -> Mapping[str, RankHistory]:
        """Fall back to the last known history if it cannot be read now: it does not change."""
        if readings.histories is not None:
            self._histories = readings.histories
        return self._histories


class _Trial:
    """Runs the steps of one assembly and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def of(self, what: str, step: Callable[[], T], default: T) -> T:
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - a failing step is a fact to show, not the end
            self.problems.append(f"{what}: {described(error)}")
            return default


def _around(host: HostAndProcesses | None, gpus: tuple[GpuReading, ...], now_ns: int) -> Around:
    if host is None:
        return Around(now_ns=now_ns, gpus=gpus)
    return Around(
        now_ns=now_ns,
        processes=host.processes,
        gpus=gpus,
        host=host.machine,
        oom_killed=host.oom_killed,
    )


def _present(found: RecordsReading) -> set[str]:
    """Folders of existing records, including unreadable ones, and unreadable directories."""
    folders = {record.folder for record in found.records}
    return folders | {refusal.path for refusal in found.refusals}


def bounded(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """The first refusals of each kind and of all kinds, so that no kind hides another."""
    shown: list[Refusal] = []
    kinds: Counter[str] = Counter()
    for refusal in refusals:
        kinds[refusal.reason] += 1
        if kinds[refusal.reason] <= REFUSALS_OF_A_KIND and len(shown) < REFUSALS:
            shown.append(refusal)
    return tuple(shown)
