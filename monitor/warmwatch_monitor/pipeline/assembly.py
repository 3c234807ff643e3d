"""Combines the latest readings, and the runs that ``judging`` makes of them, into one Snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from warmwatch_monitor.model import Refusal, RunView, Snapshot, SourceHealth
from warmwatch_monitor.model.budgets import LEFT_OUT
from warmwatch_monitor.settings import Settings
from warmwatch_monitor.sources.listed import HOST, NVML, OBSERVED, RECORDS, Readings

if TYPE_CHECKING:
    from warmwatch_monitor.model import RankHistory
    from warmwatch_monitor.pipeline.judging import Analysed, Analysis
    from warmwatch_monitor.sources.records.source import RecordsReading

# Thousands of stray files must not make /status megabytes long.
REFUSALS_OF_A_KIND, REFUSALS = 20, 100


class Assembled(Struct, frozen=True, kw_only=True):
    """A Snapshot, and the problems while making it, one sentence each."""

    snapshot: Snapshot
    problems: tuple[str, ...] = ()


class Assembly:
    """Makes Snapshots. Holds the state that spans several of them."""

    def __init__(self, settings: Settings) -> None:
        self._directories = settings.directories
        self._awaits = settings.awaits
        self._settings = settings
        self._analysis: Analysis | None = None  # made with the first record
        self._histories: Mapping[str, RankHistory] = {}
        self._left_out = self._left_out_total = dict.fromkeys(LEFT_OUT, 0)

    def make(
        self, readings: Readings, health: tuple[SourceHealth, ...], now_ns: int, epoch: float
    ) -> Assembled:
        """The Snapshot of these readings at ``now_ns``."""
        found, host = readings.of(RECORDS), readings.of(HOST)
        refused = found.refusals if found else ()
        if found and any(one.slot.identity.started_by == self._awaits for one in found.records):
            self._awaits = None
        analysed = self._analysed(readings, found, now_ns)
        runs = analysed.runs if analysed else ()
        refusals = (*(analysed.refusals if analysed else ()), *refused)
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
            gpus=readings.of(NVML) or (),
            observed=readings.of(OBSERVED) or (),
            host=host.machine if host else None,
            sources=health,
            directories=self._directories,
            awaited=self._awaits is not None,
        )
        return Assembled(snapshot=snapshot, problems=analysed.problems if analysed else ())

    def _analysed(
        self, readings: Readings, found: RecordsReading | None, now_ns: int
    ) -> Analysed | None:
        """The runs and what is wrong with them; ``None`` before there is a record."""
        records = found.records if found else ()
        if self._analysis is None:
            if not records:
                return None
            from warmwatch_monitor.pipeline.judging import Analysis

            self._analysis = Analysis(self._settings)
        return self._analysis.of(
            records,
            _present(found) if found else None,
            readings.of(HOST),
            readings.of(NVML) or (),
            self._latest_histories(readings),
            now_ns,
        )

    def _count_left_out(
        self, found: RecordsReading | None, runs: tuple[RunView, ...]
    ) -> Mapping[str, int]:
        """Count what is left out now. Increases since the last Snapshot add to the total."""
        views = [view for run in runs for view in run.ranks if view.living]
        unknown = sum(
            max(0, len(view.figures.who.reported_gpus) - len(view.gpus)) for view in views
        )
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
