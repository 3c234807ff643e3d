"""The poller: when to read which source, and when to publish.

Each source has its own thread, so a source that hangs blocks only itself. The publisher wakes after
each read of the records, or when that is overdue, and publishes one Snapshot by one assignment. The
last value of a source counts until the source fails or is overdue. Then the value is absent, and
the source's health states the reason.

A Snapshot combines the latest readings and the runs that ``judging`` makes of them. The publisher's
health is listed among the sources. The age of a Snapshot is checked when it is requested, because
publishing may have stopped since.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import described
from warmwatch_monitor.base.settings import Settings
from warmwatch_monitor.figures.machine import Refusal, SourceHealth
from warmwatch_monitor.model.budgets import LEFT_OUT, LONGEST_PAUSE, POLL_LONGEST, REQUESTED_RUNS
from warmwatch_monitor.model.snapshot import RunView, Snapshot
from warmwatch_monitor.sources.listed import (
    HOST,
    NOT_YET,
    NVML,
    OBSERVED,
    RECORDS,
    SOURCES,
    Feed,
    Readings,
    Source,
)

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


_ONCE_SECONDS = 5.0  # for one read of a source by a command
_TO_ITS_END_NS = 60 * 10**9  # for a source that reads in pieces
_STALE_NS = 10**8  # records older than this are read again after the other sources
_SHORTEST_PAUSE = 1.0  # seconds without new records until the publisher wakes
_LATE_AFTER_PAUSES = 3
_STOP_SECONDS = 2.0
_REQUEST_VALID_NS = 30 * 10**9


class Poller:
    """Polls until :meth:`stop`."""

    def __init__(
        self,
        settings: Settings,
        *,
        sources: Iterable[Source[Any]] = SOURCES,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._sources: dict[str, Source[Any]] = {}
        self._feeds: dict[str, Feed[Any]] = {}
        for source in sources:
            interval = source.interval(settings)
            if interval is not None:
                read = source.make(settings, self._clock)
                self._sources[source.name] = source
                self._feeds[source.name] = Feed(
                    source.name,
                    partial(self._read_after_others, read),
                    self._clock,
                    interval,
                    source.problem,
                )
        self._stopping, self._fresh = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._assembly = Assembly(settings)
        self._pause = max(_SHORTEST_PAUSE, 2 * settings.interval)
        self._awake_ns = 0
        self._requested = RequestedRuns(self._clock)
        empty = replace(self._assemble().snapshot, epoch=0.0)
        self._publisher = Publisher(
            self._assemble, empty, self._clock, _LATE_AFTER_PAUSES * self._pause
        )

    def latest(self) -> Snapshot:
        """The latest Snapshot; before the first poll an empty one with epoch 0."""
        return self._publisher.latest()

    def request(self, run: str) -> None:
        """Read the records of ``run`` before others of the same owner."""
        self._requested.note(run)

    def follow(self, follower: Follower) -> None:
        """Give ``follower`` each Snapshot as it is published, from the publisher's thread."""
        self._publisher.follow(follower)

    def poll_once(self, seconds: float = math.inf) -> Snapshot:
        """Read every source once and publish: for commands without a daemon.

        ``seconds``: time limit for all of them together, if less than usual.

        A source that hangs, such as a driver, delays only the first call. A source that reads in
        pieces is read to its end, since a command reads it only once. The records are read first,
        because the other sources need them. They are read again if those took long, or the answer
        would report that no step was made in that time; and if a compiler runs below one of them,
        since only a record that is read after that shows whether its agent knows of it.
        """
        end_ns = self._clock.monotonic_ns() + seconds * 1e9
        read_ns = self._clock.monotonic_ns()
        for name in self._feeds:
            self._read_once(name, end_ns)
            if name == RECORDS.name:
                read_ns = self._clock.monotonic_ns()
        stale = self._clock.monotonic_ns() - read_ns > _STALE_NS or self._compilers_run()
        if RECORDS.name in self._feeds and stale:
            self._read_once(RECORDS.name, end_ns)
        return self._publisher.publish()

    def _compilers_run(self) -> bool:
        host = self._current()[0].of(HOST)
        return host is not None and any(process.compiling for process in host.processes.values())

    def _read_once(self, name: str, end_ns: float) -> None:
        """Read one source while each read leaves less, until ``end_ns`` at most.

        The answer reports the remainder.
        """
        source, feed = self._sources[name], self._feeds[name]
        seconds = (end_ns - self._clock.monotonic_ns()) / 1e9
        feed.read_within(min(source.once_seconds or _ONCE_SECONDS, max(0.0, seconds)))
        until_ns = min(self._clock.monotonic_ns() + _TO_ITS_END_NS, end_ns)
        left: float = math.inf
        while (now_ns := self._clock.monotonic_ns()) < until_ns:
            reading, _ = feed.current(now_ns)
            left_before, left = left, 0 if reading is None else source.unread(reading)
            if not 0 < left < left_before:
                return
            feed.read_within(_ONCE_SECONDS)

    def start(self) -> None:
        """Start polling in daemon threads."""
        work: dict[str, Callable[[], None]] = {"publisher": self._publish_until_stopped}
        for name, feed in self._feeds.items():
            if name == RECORDS.name:  # the publisher's work counts as theirs
                after_read = self._fresh.set, lambda: self._publisher.cpu_seconds
                work[name] = partial(feed.follow, self._stopping, *after_read)
            else:
                work[name] = partial(feed.follow, self._stopping)
        for name, target in work.items():
            thread = threading.Thread(target=target, name=f"warmwatch-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop the threads; does not wait for a thread that hangs in a source."""
        self._stopping.set()
        self._fresh.set()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def _read_after_others(self, read: Callable[[Readings], Any]) -> Any:
        """Call ``read`` with the current values of the other sources."""
        return read(self._current()[0])

    def _current(self) -> tuple[Readings, tuple[SourceHealth, ...]]:
        """The last value and the health of each source."""
        now_ns = self._clock.monotonic_ns()
        values, health = {}, []
        for name, feed in self._feeds.items():
            value, source_health = feed.current(now_ns, self._awake_ns)
            health.append(source_health)
            if value is not None:
                values[name] = value
        return Readings(values=values, requested=self._requested.names()), tuple(health)

    def _publish_until_stopped(self) -> None:
        before_ns = self._clock.monotonic_ns()
        while not self._stopping.is_set():
            # longer than a busy daemon's pause and poll: publishing in between doubles its work
            self._fresh.wait(max(self._pause, LONGEST_PAUSE + POLL_LONGEST))
            if self._clock.monotonic_ns() - before_ns > _LATE_AFTER_PAUSES * self._pause * 1e9:
                self._wait_after_stop()
            self._fresh.clear()
            self._publisher.publish()
            before_ns = self._clock.monotonic_ns()

    def _wait_after_stop(self) -> None:
        """Wait for the records after the whole process was stopped (a signal, a frozen cgroup).

        No source is at fault for that time, and earlier readings are out of date.
        """
        self._fresh.clear()
        self._awake_ns = self._clock.monotonic_ns()
        self._fresh.wait(self._pause)

    def _assemble(self) -> Assembled:
        readings, health = self._current()
        clock = self._clock
        return self._assembly.make(readings, health, clock.monotonic_ns(), clock.epoch())


class RequestedRuns:
    """The names of runs that clients requested lately: their records are read and shown first.

    Used from the event loop, and from the thread that reads the records.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._requested: OrderedDict[str, int] = OrderedDict()  # and when; the newest last

    def note(self, run: str) -> None:
        """A client requested ``run`` now."""
        with self._lock:
            self._requested[run] = self._clock.monotonic_ns()
            self._requested.move_to_end(run)
            if len(self._requested) > REQUESTED_RUNS:
                self._requested.popitem(last=False)

    def names(self) -> frozenset[str]:
        """The names that were requested in the last 30 s, also without the owner in a name."""
        since_ns = self._clock.monotonic_ns() - _REQUEST_VALID_NS
        with self._lock:
            names = [run for run, at_ns in self._requested.items() if at_ns > since_ns]
        return frozenset((*names, *(run.rpartition("@")[0] for run in names if "@" in run)))
