"""The poller: when to read which source, and when to publish.

Each source has its own thread, so a source that hangs blocks only itself. The publisher wakes after
each read of the records, or when that is overdue, and publishes one Snapshot by one assignment. The
last value of a source counts until the source fails or is overdue. Then the value is absent, and
the source's health states the reason.

The publisher's health is listed among the sources. The age of a Snapshot is checked when it is
requested, because publishing may have stopped since.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.errors import SourceError, described
from warmwatch_monitor.model import Snapshot, SourceHealth
from warmwatch_monitor.model.budgets import (
    LONGEST_PAUSE,
    POLL_LONGEST,
    REQUESTED_OF_A_PEER,
    REQUESTING_PEERS,
    SHARE_OF_A_CORE,
)
from warmwatch_monitor.pipeline.assembly import Assembled, Assembly
from warmwatch_monitor.settings import Settings
from warmwatch_monitor.sources.listed import RECORDS, SOURCES, Readings, Source

_ONCE_SECONDS = 5.0
_TO_ITS_END_NS = 60 * 10**9
_STALE_NS = 10**8  # records older than this are read again after the other sources
_LONGEST_SILENCE = 1.0
_LATE_AFTER_PAUSES = 3
_STOP_SECONDS = 2.0

T = TypeVar("T")

NOT_YET = "it has not been read yet"

_SILENCE_SECONDS = 5.0
_SILENCE_INTERVALS = 3


class _Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    value: T | None
    health: SourceHealth
    at_ns: int


class Feed(Generic[T]):
    """One data source: its last reading and its health. Only this turns a failure into health.

    At most one read is in progress: a driver that hangs must not be called again meanwhile. Reads
    ``source`` every ``interval`` seconds; any thread may call :meth:`current`.

    ``problem`` returns why a value is incomplete: its source is then down, but the value counts.
    """

    def __init__(
        self,
        name: str,
        source: Callable[[], T],
        clock: Clock,
        interval: float,
        problem: Callable[[T], str | None] = lambda _: None,
    ) -> None:
        self._problem = problem
        self._name, self._source, self._clock, self._interval = name, source, clock, interval
        self._patience = max(_SILENCE_SECONDS, _SILENCE_INTERVALS * interval)
        self._last_success: float | None = None
        self._under_way = threading.Lock()
        self._thread: threading.Thread | None = None
        self._began_ns, self._unanswered = 0, False
        health = SourceHealth(source=name, up=False, error=NOT_YET)
        self._outcome: _Outcome[T] = _Outcome(value=None, health=health, at_ns=clock.monotonic_ns())

    def read(self) -> None:
        """Read the source now, unless a read is in progress. An exception becomes its health."""
        if not self._under_way.acquire(blocking=False):
            return
        try:
            self._outcome = self._read()
        finally:
            self._under_way.release()

    def read_within(self, seconds: float) -> bool:
        """Read it in a separate thread; returns whether it answered within ``seconds``.

        A read that hangs since an earlier call gets the rest of its time and no second thread.
        """
        thread = self._thread
        if thread is None or not thread.is_alive():
            self._thread = thread = threading.Thread(
                target=self.read, name=f"warmwatch-{self._name}", daemon=True
            )
            self._began_ns = self._clock.monotonic_ns()
            thread.start()
        waited = (self._clock.monotonic_ns() - self._began_ns) / 1e9
        thread.join(max(0.0, seconds - waited))
        self._unanswered = thread.is_alive()
        return not self._unanswered

    def _read(self) -> _Outcome[T]:
        began_ns = self._clock.monotonic_ns()
        value: T | None = None
        problem: str | None = None
        try:
            value = self._source()
            problem = self._problem(value)
        except SourceError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - a failing source is a fact to show, not a crash
            problem = described(error)
        if problem is None:
            self._last_success = self._clock.epoch()
        ended_ns = self._clock.monotonic_ns()
        health = SourceHealth(
            source=self._name,
            up=problem is None,
            last_success=self._last_success,
            read_seconds=(ended_ns - began_ns) / 1e9,
            error=problem,
        )
        return _Outcome(value=value, health=health, at_ns=ended_ns)

    def current(self, now_ns: int, awake_ns: int = 0) -> tuple[T | None, SourceHealth]:
        """The last value; ``None`` if the read failed or is overdue.

        ``awake_ns``: since when this process has run; while it was stopped no source could answer.
        """
        outcome = self._outcome
        silence = (now_ns - max(outcome.at_ns, awake_ns)) / 1e9
        timed_out = self._unanswered and outcome.health.error == NOT_YET
        if silence <= self._patience and not timed_out:
            return outcome.value, outcome.health
        health = SourceHealth(
            source=self._name,
            up=False,
            last_success=outcome.health.last_success,
            error=f"no answer for {silence:.0f} s",
        )
        return None, health

    def follow(
        self,
        stopping: threading.Event,
        after_read: Callable[[], None] = lambda: None,
        also_spent: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Read until ``stopping`` is set, and call ``after_read`` after each read.

        The pause grows if a read and the work after it (``also_spent``) would take more CPU time
        than their share of a core.
        """
        while not stopping.is_set():
            began_ns, began_cpu = self._clock.monotonic_ns(), time.thread_time()
            self.read()
            after_read()
            spent = (self._clock.monotonic_ns() - began_ns) / 1e9
            cpu = time.thread_time() - began_cpu + also_spent()
            rest = min(cpu * (1 / SHARE_OF_A_CORE - 1), LONGEST_PAUSE)
            stopping.wait(max(0.01, self._interval - spent, rest))


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
        self._feeds: dict[str, Feed[Any]] = {}
        self._once_seconds: dict[str, float | None] = {}
        self._unread: dict[str, Callable[[Any], int]] = {}
        for source in sources:
            interval = source.interval(settings)
            if interval is not None:
                read = source.make(settings, self._clock)
                self._once_seconds[source.name] = source.once_seconds
                self._unread[source.name] = source.unread
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
        self._pause = max(_LONGEST_SILENCE, 2 * settings.interval)
        self._awake_ns = 0
        self._requested = RequestedRuns(self._clock)
        empty = replace(self._assemble().snapshot, epoch=0.0)
        self._publisher = Publisher(
            self._assemble, empty, self._clock, _LATE_AFTER_PAUSES * self._pause
        )

    def latest(self) -> Snapshot:
        """The latest Snapshot; before the first poll an empty one with epoch 0."""
        return self._publisher.latest()

    def request(self, run: str, peer: str) -> None:
        """Read the records of ``run`` before others of the same owner; ``peer`` requested it."""
        self._requested.note(run, peer)

    def follow(self, follower: Follower) -> None:
        """Give ``follower`` each Snapshot as it is published, from the publisher's thread."""
        self._publisher.follow(follower)

    def poll_once(self, seconds: float | None = None) -> Snapshot:
        """Read every source once and publish: for commands without a daemon.

        ``seconds``: time limit for all of them together, if less than usual.

        A source that hangs, such as a driver, delays only the first call. A source that reads in
        pieces is read to its end, since a command reads it only once. The records are read first,
        because the other sources need them, and again if those took long: otherwise the answer
        would report that no step was made in that time.
        """
        end_ns = None
        if seconds is not None:
            end_ns = self._clock.monotonic_ns() + round(seconds * 1e9)
        read_ns = self._clock.monotonic_ns()
        for name in self._feeds:
            self._read_once(name, end_ns)
            if name == RECORDS.name:
                read_ns = self._clock.monotonic_ns()
        if RECORDS.name in self._feeds and self._clock.monotonic_ns() - read_ns > _STALE_NS:
            self._read_once(RECORDS.name, end_ns)
        return self._publisher.publish()

    def _read_once(self, name: str, end_ns: int | None) -> None:
        """Read one source to its end, until ``end_ns`` at most."""
        feed, left = self._feeds[name], self._once_seconds[name] or _ONCE_SECONDS
        if end_ns is not None:
            left = min(left, max(0.0, (end_ns - self._clock.monotonic_ns()) / 1e9))
        feed.read_within(left)
        self._read_to_its_end(feed, self._unread[name], end_ns)

    def _read_to_its_end(
        self, feed: Feed[Any], unread: Callable[[Any], int], end_ns: int | None
    ) -> None:
        """Read while each read leaves less. The answer reports the remainder."""
        until_ns = self._clock.monotonic_ns() + _TO_ITS_END_NS
        until_ns = until_ns if end_ns is None else min(until_ns, end_ns)
        left: float = float("inf")
        while (now_ns := self._clock.monotonic_ns()) < until_ns:
            value, _ = feed.current(now_ns)
            still = 0 if value is None else unread(value)
            if not 0 < still < left:
                return
            left = still
            feed.read_within(_ONCE_SECONDS)

    def start(self) -> None:
        """Start polling in daemon threads."""
        work: dict[str, Callable[[], None]] = {"publisher": self._publish_until_stopped}
        for name, feed in self._feeds.items():
            work[name] = partial(feed.follow, self._stopping)
            if name == RECORDS.name:
                spent = partial(getattr, self._publisher, "cpu_seconds")
                work[name] = partial(feed.follow, self._stopping, self._fresh.set, spent)
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
            value, one = feed.current(now_ns, self._awake_ns)
            health.append(one)
            if value is not None:
                values[name] = value
        return Readings(values=values, requested=self._requested.names()), tuple(health)

    def _publish_until_stopped(self) -> None:
        before_ns = self._clock.monotonic_ns()
        while not self._stopping.is_set():
            # longer than a busy daemon's pause and poll: publishing in between doubles its work
            self._fresh.wait(max(self._pause, LONGEST_PAUSE + POLL_LONGEST))
            if self._clock.monotonic_ns() - before_ns > _LATE_AFTER_PAUSES * self._pause * 1e9:
                self._awake()
            self._fresh.clear()
            self._publisher.publish()
            before_ns = self._clock.monotonic_ns()

    def _awake(self) -> None:
        """Wait for the records after the whole process was stopped (a signal, a frozen cgroup).

        The pause is not the fault of any source, and earlier readings are out of date.
        """
        self._fresh.clear()
        self._awake_ns = self._clock.monotonic_ns()
        self._fresh.wait(self._pause)

    def _assemble(self) -> Assembled:
        readings, health = self._current()
        clock = self._clock
        return self._assembly.make(readings, health, clock.monotonic_ns(), clock.epoch())


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
        self._late: tuple[Snapshot, int, Snapshot] | None = None
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
        known = self._late
        if known is None or known[0] is not snapshot or known[1] != int(age):
            self._late = known = (snapshot, int(age), self._aged(snapshot, age))
        return known[2]

    def _aged(self, snapshot: Snapshot, age: float) -> Snapshot:
        health = SourceHealth(
            source=PUBLISHER,
            up=False,
            last_success=self._last_success,
            error=f"nothing has been published for {age:.0f} s{_why(snapshot)}",
        )
        return replace(snapshot, late_seconds=age, sources=(*_others(snapshot), health))


def _why(snapshot: Snapshot) -> str:
    """The error of the last attempt, if it failed."""
    (health,) = (one for one in snapshot.sources if one.source == PUBLISHER)
    return f": {health.error}" if health.error and health.error != NOT_YET else ""


def _others(snapshot: Snapshot) -> tuple[SourceHealth, ...]:
    return tuple(health for health in snapshot.sources if health.source != PUBLISHER)


_VALID_NS = 30 * 10**9


class RequestedRuns:
    """The names of runs that clients requested lately: their records are read and shown first.

    Bounded per client, so that no client can push out what another one requested. Used from the
    event loop, and from the thread that reads the records.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._peers: OrderedDict[str, OrderedDict[str, int]] = OrderedDict()

    def note(self, run: str, peer: str) -> None:
        """A client, named by ``peer``, requested ``run`` now."""
        with self._lock:
            runs = self._peers.setdefault(peer, OrderedDict())
            runs[run] = self._clock.monotonic_ns()
            runs.move_to_end(run)
            if len(runs) > REQUESTED_OF_A_PEER:
                runs.popitem(last=False)
            self._peers.move_to_end(peer)
            if len(self._peers) > REQUESTING_PEERS:
                self._peers.popitem(last=False)

    def names(self) -> frozenset[str]:
        """The names that were requested in the last 30 s, without the owners that some name."""
        if not self._peers:
            return frozenset()
        since = self._clock.monotonic_ns() - _VALID_NS
        with self._lock:
            found = [run for runs in self._peers.values() for run, at in runs.items() if at > since]
        return frozenset((*found, *(run.rpartition("@")[0] for run in found if "@" in run)))
