"""The list of sources: a new one is one file in this folder and one entry here.

The poller follows the list and knows none of them by itself. Each is read in a thread of its own,
in the order of the list where a command reads them once: a source may ask for what those above it
have read. A module is imported when its source is made, the bindings of NVML once its
library is found: who has no GPU does not pay for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warmwatch_monitor.budgets import POLL_SECONDS
from warmwatch_monitor.clock import Clock
from warmwatch_monitor.config import Settings
from warmwatch_monitor.model import GpuReading, ObservedTraining
from warmwatch_monitor.sources.library import require_nvml
from warmwatch_monitor.sources.readings import Read, Readings, Source

if TYPE_CHECKING:
    from warmwatch_monitor.sources.host import HostAndProcesses
    from warmwatch_monitor.sources.nvml import NvmlSource
    from warmwatch_monitor.sources.records import RecordsReading

_HOST_INTERVAL = 1.0
_OBSERVED_INTERVAL = 2.0


def _records(settings: Settings, clock: Clock) -> Read[RecordsReading]:
    from warmwatch_monitor.sources.records import RecordsSource

    source = RecordsSource(settings.directories, retention=settings.retention, clock=clock)
    return lambda _: source.read(POLL_SECONDS)


def _host(_settings: Settings, clock: Clock) -> Read[HostAndProcesses]:
    from warmwatch_monitor.sources.host import HostAndProcesses, HostSource, read_machine
    from warmwatch_monitor.sources.oom import OomWatch

    source, ooms = HostSource(clock=clock), OomWatch()

    def read(others: Readings) -> HostAndProcesses:
        pids = living(others)
        return HostAndProcesses(
            machine=read_machine(), processes=source.read(pids), oom_killed=ooms.follow(pids)
        )

    return read


def _nvml(_settings: Settings, clock: Clock) -> Read[tuple[GpuReading, ...]]:
    source: NvmlSource | None = None

    def read(_: Readings) -> tuple[GpuReading, ...]:
        nonlocal source
        if source is None:
            require_nvml()
            from warmwatch_monitor.sources.nvml import NvmlSource

            source = NvmlSource(clock=clock)
        return source.read()

    return read


def _observed(_settings: Settings, clock: Clock) -> Read[tuple[ObservedTraining, ...]]:
    from warmwatch_monitor.sources.observed import ObservedSource

    source = ObservedSource(clock=clock)
    return lambda others: source.read(living(others), others.of(NVML) or ())


def living(readings: Readings) -> list[int]:
    """The pids of the processes that hold a record's lock."""
    found = readings.of(RECORDS)
    return [one.pid for one in found.records if one.pid is not None] if found else []


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
