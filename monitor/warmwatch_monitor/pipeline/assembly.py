"""Combines the latest readings, and the runs that ``judging`` makes of them, into one Snapshot, and
publishes it.

The publisher's health is listed among the sources. The age of a Snapshot is checked when it is
requested, because publishing may have stopped since.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import described
from warmwatch_monitor.base.settings import Settings
from warmwatch_monitor.figures.machine import Refusal, SourceHealth
from warmwatch_monitor.model.budgets import LEFT_OUT
from warmwatch_monitor.model.snapshot import RunView, Snapshot
from warmwatch_monitor.sources.listed import HOST, NOT_YET, NVML, OBSERVED, RECORDS, Readings

if TYPE_CHECKING:
    from warmwatch_monitor.model.figures import RankHistory
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
        self._settings, self._awaits = settings, settings.awaits
        self._analysis: Analysis | None = None  # made with the first record
        self._histories: Mapping[str, RankHistory] = {}
        self._left_out = self._left_out_total = dict.fromkeys(LEFT_OUT, 0)

    def make(
        self, readings: Readings, health: tuple[SourceHealth, ...], now_ns: int, epoch: float
    ) -> Assembled:
        """The Snapshot of these readings at ``now_ns``."""
        reading, host = readings.of(RECORDS), readings.of(HOST)
        records = reading.records if reading else ()
        if any(record.slot.identity.started_by == self._awaits for record in records):
            self._awaits = None
        analysed = self._analysed(readings, reading, now_ns)
        runs = analysed.runs if analysed else ()
        refusals = (
            *(analysed.refusals if analysed else ()),
            *(reading.refusals if reading else ()),
        )
        shown, left_out = bounded(refusals), self._count_left_out(reading, runs)
        snapshot = Snapshot(
            epoch=epoch,
            now_ns=now_ns,
            runs=runs,
            earlier_starts=analysed.earlier if analysed else (),
            refusals=shown,
            more_refusals=len(refusals) - len(shown),
            left_out=left_out,
            left_out_total=self._left_out_total,
            gpus=readings.of(NVML) or (),
            observed=readings.of(OBSERVED) or (),
            host=host.machine if host else None,
            sources=health,
            directories=self._settings.directories,
            awaited=self._awaits is not None,
        )
        if reading is not None:
            snapshot = replace(
                snapshot,
                more_refusals=snapshot.more_refusals + reading.more_refusals,
                unread=reading.unread,
                unread_beyond=reading.unread_beyond,
                left_out_runs=reading.left_out_runs,
                left_out_uids=reading.over,
                crowded=reading.crowded,
                rooms=reading.rooms,
            )
        return Assembled(snapshot=snapshot, problems=analysed.problems if analysed else ())

    def _analysed(
        self, readings: Readings, reading: RecordsReading | None, now_ns: int
    ) -> Analysed | None:
        """The runs and what is wrong with them; ``None`` before there is a record."""
        records = reading.records if reading else ()
        if self._analysis is None:
            if not records:
                return None
            from warmwatch_monitor.pipeline.judging import Analysis  # loaded with the first record

            self._analysis = Analysis(self._settings)
        return self._analysis.of(
            records,
            _present(reading) if reading else None,
            readings.of(HOST),
            readings.of(NVML) or (),
            self._latest_histories(readings),
            now_ns,
            (reading.read_ns if reading else 0) or now_ns,
        )

    def _count_left_out(
        self, reading: RecordsReading | None, runs: tuple[RunView, ...]
    ) -> Mapping[str, int]:
        """Count what is left out now. Increases since the last reading add to the total."""
        nothing = dict.fromkeys(LEFT_OUT, 0)
        if reading is None:
            return nothing  # the next reading does not count the same again
        views = [view for run in runs for view in run.ranks if view.living]
        unlisted_gpus = sum(
            max(0, len(view.figures.who.reported_gpus) - len(view.gpus)) for view in views
        )
        now = {**nothing, **reading.left_out, "gpus": unlisted_gpus}
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


def _present(reading: RecordsReading) -> set[str]:
    """Folders of existing records, including unreadable ones, and unreadable directories."""
    folders = {record.folder for record in reading.records}
    return folders | {refusal.path for refusal in reading.refusals}


def bounded(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """The first refusals of each kind and of all kinds, so that no kind hides another."""
    shown: list[Refusal] = []
    kinds: Counter[str] = Counter()
    for refusal in refusals:
        kinds[refusal.reason] += 1
        if kinds[refusal.reason] <= REFUSALS_OF_A_KIND and len(shown) < REFUSALS:
            shown.append(refusal)
    return tuple(shown)


PUBLISHER = "publisher"
_SHORTEST_PATIENCE = 5.0

Follower = Callable[[Snapshot], None]


class Publisher:
    """Publishes the results of ``assemble``. ``patience``: seconds until one is overdue."""

    def __init__(
        self, assemble: Callable[[], Assembled], empty: Snapshot, clock: Clock, patience: float
    ) -> None:
        self._assemble, self._clock = assemble, clock
        self._patience = max(_SHORTEST_PATIENCE, patience)
        self._last_success: float | None = None
        health = SourceHealth(source=PUBLISHER, up=False, error=NOT_YET)
        self._latest = replace(empty, sources=(*empty.sources, health))
        self._overdue = self._latest, -1, self._latest  # of which, its age, and with that age
        self._followers: list[Follower] = []
        self._follower_error: str | None = None
        self.cpu_seconds = 0.0  # of the last Snapshot

    def follow(self, follower: Follower) -> None:
        """Give ``follower`` each Snapshot from now on, in the order in which they are published."""
        self._followers.append(follower)

    def publish(self) -> Snapshot:
        """Make a Snapshot and publish it. An exception becomes the publisher's health."""
        began_ns, began_cpu = self._clock.monotonic_ns(), time.thread_time()
        try:
            made = self._assemble()
            failed = () if self._follower_error is None else (self._follower_error,)
            snapshot, problem = made.snapshot, "; ".join((*made.problems, *failed)) or None
        except Exception as error:  # noqa: BLE001 - its thread must live, and this must be seen
            snapshot = replace(self._latest, sources=_others(self._latest))
            problem = described(error)
        if problem is None:
            self._last_success = self._clock.epoch()
        health = SourceHealth(
            source=PUBLISHER,
            up=problem is None,
            last_success=self._last_success,
            read_seconds=(self._clock.monotonic_ns() - began_ns) / 1e9,
            error=problem,
        )
        self._latest = snapshot = replace(snapshot, sources=(*snapshot.sources, health))
        self._notify(snapshot)
        self.cpu_seconds = time.thread_time() - began_cpu
        return snapshot

    def _notify(self, snapshot: Snapshot) -> None:
        """Call the followers. An exception shows in the health of the next Snapshot."""
        self._follower_error = None
        for follower in self._followers:
            try:
                follower(snapshot)
            except Exception as error:  # noqa: BLE001 - its thread must live, and this must be seen
                self._follower_error = f"a follower of the Snapshots failed: {described(error)}"

    def latest(self) -> Snapshot:
        """The latest Snapshot; an overdue one has its age, which changes once a second.

        Answers made from a Snapshot are cached while it is the same object.
        """
        snapshot = self._latest
        age = (self._clock.monotonic_ns() - snapshot.now_ns) / 1e9
        if age <= self._patience:
            return snapshot
        overdue, seconds, aged = self._overdue
        if overdue is not snapshot or seconds != int(age):
            aged = self._with_age(snapshot, age)
            self._overdue = snapshot, int(age), aged
        return aged

    def _with_age(self, snapshot: Snapshot, age: float) -> Snapshot:
        health = SourceHealth(
            source=PUBLISHER,
            up=False,
            last_success=self._last_success,
            error=f"nothing has been published for {age:.0f} s{_why(snapshot)}",
        )
        return replace(snapshot, late_seconds=age, sources=(*_others(snapshot), health))


def _why(snapshot: Snapshot) -> str:
    """The error of the last attempt, if it failed."""
    (health,) = (source for source in snapshot.sources if source.source == PUBLISHER)
    return f": {health.error}" if health.error and health.error != NOT_YET else ""


def _others(snapshot: Snapshot) -> tuple[SourceHealth, ...]:
    return tuple(health for health in snapshot.sources if health.source != PUBLISHER)
