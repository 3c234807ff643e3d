"""The poller: when to read which source, and when to publish.

Each source has its own thread, so a source that hangs blocks only itself. The publisher wakes after
each read of the records, or when that is overdue, and publishes one Snapshot by one assignment. The
last value of a source counts until the source fails or is overdue. Then the value is absent, and
the source's health states the reason.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec.structs import replace

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.settings import Settings
from warmwatch_monitor.figures.machine import SourceHealth
from warmwatch_monitor.model.budgets import LONGEST_PAUSE, POLL_LONGEST, REQUESTED_RUNS
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline.assembly import Assembled, Assembly, Follower, Publisher
from warmwatch_monitor.sources.listed import HOST, RECORDS, SOURCES, Feed, Readings, Source

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
