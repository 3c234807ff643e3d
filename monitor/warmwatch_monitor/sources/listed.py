"""The list of data sources. A source has a name, an interval, and a function that reads it."""

from __future__ import annotations

from _ctypes import dlopen
from collections.abc import Callable, Mapping
from os import RTLD_LOCAL
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Struct, field

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.errors import SourceError
from warmwatch_monitor.model.budgets import POLL_SECONDS
from warmwatch_monitor.settings import Settings
from warmwatch_monitor.sources import nvml

if TYPE_CHECKING:
    from warmwatch_monitor.model import GpuReading, ObservedTraining, RankHistory
    from warmwatch_monitor.sources.host import HostAndProcesses
    from warmwatch_monitor.sources.nvml.source import NvmlSource
    from warmwatch_monitor.sources.records.source import RecordsReading


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
        unread: how much a reading leaves to the next reads: a command reads until it is none.
        once_seconds: how long a command that reads it once waits for it, if not the default.
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
    from warmwatch_monitor.sources.records.source import RecordsSource

    source = RecordsSource(settings.directories, retention=settings.retention, clock=clock)
    return lambda others: source.read(POLL_SECONDS, others.requested)


def _host(_settings: Settings, clock: Clock) -> Read[HostAndProcesses]:
    from warmwatch_monitor.sources.host import HostAndProcesses, HostSource, OomWatch, read_machine

    source, ooms = HostSource(clock=clock), OomWatch()

    def read(others: Readings) -> HostAndProcesses:
        pids = living(others)
        steady = is_steady(others, clock.monotonic_ns())
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
            _require_nvml()
            from warmwatch_monitor.sources.nvml.source import NvmlSource

            source = NvmlSource(clock=clock)
        return source.read(steady=is_steady(others, clock.monotonic_ns()))

    return read


def _require_nvml() -> None:
    """Check for NVIDIA's library before its bindings are imported; a later poll finds a new one.

    Without the library, ``ctypes`` and the bindings would take a tenth of the run time of
    ``warmwatch status``, and 3 MB of the daemon.

    Raises:
        SourceError: the library is not found.
    """
    try:
        dlopen(nvml.NVML, RTLD_LOCAL)
    except OSError:
        raise SourceError(nvml.MISSING) from None


def _observed(_settings: Settings, clock: Clock) -> Read[tuple[ObservedTraining, ...]]:
    from warmwatch_monitor.sources.unattached import ObservedSource

    source = ObservedSource(clock=clock)
    return lambda others: source.read(living(others), others.of(NVML) or ())


def is_steady(readings: Readings, now_ns: int) -> bool:
    """Whether no attached process has compiled anything, or was attached, in the last minute."""
    found = readings.of(RECORDS)
    slots = [one.slot for one in found.records if one.alive] if found else []
    return not any(
        counts.active_since_ns
        or counts.background_since_ns
        or now_ns - max(counts.last_end_ns, counts.background_ended_ns, header.attached_ns)
        < _STEADY_NS
        for counts, header in ((slot.compile, slot.header) for slot in slots)
    )


def living(readings: Readings) -> list[int]:
    """The pids of the processes that hold a record's lock; one may hold those of many records."""
    found = readings.of(RECORDS)
    records = found.records if found else ()
    return list(dict.fromkeys(one.pid for one in records if one.pid is not None))


RECORDS: Source[RecordsReading] = Source(
    name="records",
    interval=lambda settings: settings.interval,
    make=_records,
    problem=lambda found: found.problem,
    unread=lambda found: found.unread_bytes + found.unread,
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
