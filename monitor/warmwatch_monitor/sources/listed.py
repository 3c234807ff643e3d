"""The list of data sources, and how one is read, also one that hangs.

A source has a name, an interval, and a function that reads it. Its :class:`Feed` has the last
reading and the health.
"""

from __future__ import annotations

import os
import pwd
import threading
import time
from _ctypes import dlopen
from collections.abc import Callable, Mapping
from os import RTLD_LOCAL
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Struct, field

from warmwatch.shared.states import HELD_UP_FLOOR_NS
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import SourceError, described
from warmwatch_monitor.base.settings import Settings
from warmwatch_monitor.figures.machine import SourceHealth
from warmwatch_monitor.model.budgets import LONGEST_PAUSE, POLL_SECONDS, SHARE_OF_A_CORE
from warmwatch_monitor.sources import nvml
from warmwatch_monitor.sources.host import HostAndProcesses, HostSource, OomWatch, read_machine
from warmwatch_monitor.sources.records.source import RecordsReading, RecordsSource

if TYPE_CHECKING:
    from warmwatch_monitor.model.figures import RankHistory
    from warmwatch_monitor.model.machine import GpuReading, ObservedTraining
    from warmwatch_monitor.sources.nvml.source import NvmlSource


EARLIER_RUNS = "precedents"  # the history of the runs in view, if there is one

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Read = Callable[["Readings"], T]


class Source(Struct, Generic[T_co], frozen=True, kw_only=True):
    """One entry of the list of sources.

    Attributes:
        name: the public one, in ``/status`` and as a label.
        interval: seconds between two polls, ``None`` if the settings disable it.
        make: starts it, and returns the function that reads it.
        problem: why a reading lacks earlier data, so that the source counts as down although the
            rest of the reading is used; ``None`` if there is no problem.
        unread: how much is left for the next reads; a command reads until nothing is.
        once_seconds: how long a command without a daemon waits for a reading; ``None``: the
            default.
    """

    name: str
    interval: Callable[[Settings], float | None]
    make: Callable[[Settings, Clock], Read[T_co]]
    problem: Callable[[Any], str | None] = lambda _reading: None
    unread: Callable[[Any], int] = lambda _reading: 0
    once_seconds: float | None = None


def polled(name: str, seconds: float, read: Callable[[], T]) -> Source[T]:
    """A source that needs no other one's readings, such as a file that may change."""
    return Source(name=name, interval=lambda _: seconds, make=lambda *_: lambda _others: read())


class Readings(Struct, frozen=True, kw_only=True):
    """The last reading of each source; a source that failed or timed out is absent.

    ``requested``: the names of runs that clients requested recently.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    requested: frozenset[str] = frozenset()

    def of(self, source: Source[T]) -> T | None:
        """The last reading of ``source``; ``None`` if there is none now."""
        return cast("T | None", self.values.get(source.name))

    @property
    def histories(self) -> Mapping[str, RankHistory] | None:
        """Earlier runs, by record; ``None`` if there is no history, or it cannot be read."""
        return cast("Mapping[str, RankHistory] | None", self.values.get(EARLIER_RUNS))


_HOST_INTERVAL = 1.0
_OBSERVED_INTERVAL = 2.0
_STEADY_NS = 60 * 10**9


def _records(settings: Settings, clock: Clock) -> Read[RecordsReading]:
    source = RecordsSource(
        settings.directories,
        retention=settings.retention,
        everybody=_is_service(settings),
        clock=clock,
    )
    return lambda others: source.read(POLL_SECONDS, others.requested)


def _is_service(settings: Settings) -> bool:
    """Whether this user is the one that serves the whole host."""
    try:
        return pwd.getpwnam(settings.service_user).pw_uid == os.geteuid()
    except (KeyError, ValueError):
        return False


def _host(_settings: Settings, clock: Clock) -> Read[HostAndProcesses]:
    source, ooms = HostSource(clock=clock), OomWatch()

    def read(others: Readings) -> HostAndProcesses:
        pids = living(others)
        now_ns = clock.monotonic_ns()
        steady = is_steady(others, now_ns) and not _waits(others, now_ns)
        return HostAndProcesses(
            machine=read_machine(),
            processes=source.read(pids, steady=steady),
            oom_killed=ooms.follow(pids),
        )

    return read


def _nvml(_settings: Settings, clock: Clock) -> Read[tuple[GpuReading, ...]]:
    source: NvmlSource | None = None

    def read(others: Readings) -> tuple[GpuReading, ...]:
        nonlocal source
        if source is None:
            source = _nvml_source(clock)
        return source.read(steady=is_steady(others, clock.monotonic_ns()))

    return read


def _nvml_source(clock: Clock) -> NvmlSource:
    """The source, if there is NVIDIA's library; a later poll finds a new one.

    Without the library, ``ctypes`` and the bindings would take a tenth of the run time of
    ``warmwatch status``, and 3 MB of the daemon.

    Raises:
        SourceError: the library is not found.
    """
    try:
        dlopen(nvml.NVML, RTLD_LOCAL)
    except OSError:
        raise SourceError(nvml.MISSING) from None
    from warmwatch_monitor.sources.nvml.source import NvmlSource  # the bindings

    return NvmlSource(clock=clock)


def _observed(_settings: Settings, clock: Clock) -> Read[tuple[ObservedTraining, ...]]:
    from warmwatch_monitor.sources.unattached import ObservedSource  # off in many commands

    source = ObservedSource(clock=clock)
    return lambda others: source.read(living(others), others.of(NVML) or ())


def is_steady(readings: Readings, now_ns: int) -> bool:
    """Whether no attached process has compiled anything, or was attached, in the last minute."""
    reading = readings.of(RECORDS)
    slots = [record.slot for record in reading.records if record.alive] if reading else []
    return not any(
        counts.active_since_ns
        or counts.background_since_ns
        or now_ns - max(counts.last_end_ns, counts.background_ended_ns, header.attached_ns)
        < _STEADY_NS
        for counts, header in ((slot.compile, slot.header) for slot in slots)
    )


def _waits(readings: Readings, now_ns: int) -> bool:
    """Whether a rank has marked no step for so long that a build below it may hold it up."""
    reading = readings.of(RECORDS)
    if not reading or not reading.records:
        return False
    steps = [record.slot.steps for record in reading.records if record.alive]
    return any(step.steps and now_ns - step.last_step_ns > HELD_UP_FLOOR_NS for step in steps)


def living(readings: Readings) -> list[int]:
    """The pids of the processes that hold a record's lock; one may hold those of many records."""
    reading = readings.of(RECORDS)
    records = reading.records if reading else ()
    return list(dict.fromkeys(record.pid for record in records if record.pid is not None))


RECORDS: Source[RecordsReading] = Source(
    name="records",
    interval=lambda settings: settings.interval,
    make=_records,
    problem=lambda value: value.problem,
    unread=lambda value: value.unread_bytes + value.unread,
)
HOST: Source[HostAndProcesses] = Source(
    name="host", interval=lambda settings: max(settings.interval, _HOST_INTERVAL), make=_host
)
NVML: Source[tuple[GpuReading, ...]] = Source(
    name="nvml", interval=lambda settings: settings.gpu_interval, make=_nvml
)
OBSERVED: Source[tuple[ObservedTraining, ...]] = Source(
    name="observed",
    interval=lambda settings: (
        max(settings.interval, _OBSERVED_INTERVAL) if settings.observe else None
    ),
    make=_observed,
)

SOURCES: tuple[Source[Any], ...] = (RECORDS, HOST, NVML, OBSERVED)


NOT_YET = "its first read has not ended"
_SILENCE_SECONDS, _SILENCE_INTERVALS = 5.0, 3


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
