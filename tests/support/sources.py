"""A poller over sources that a test controls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.values import replace
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.settings import Address, Settings
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.pipeline.poller import Poller
from warmwatch_monitor.sources.host import HostAndProcesses
from warmwatch_monitor.sources.listed import NVML, OBSERVED, SOURCES, Readings, Source
from warmwatch_monitor.sources.records.source import RecordsReading

NOWHERE = Address(host="127.0.0.1", port=0)


def settings(*directories: str, **values: Any) -> Settings:
    """Settings that only read the records and the host, changed by ``values``."""
    known = {"gpu_interval": None, "observe": False, **values}
    return Settings(directories=directories, chosen=True, address=NOWHERE, **known)


def instead(source: Source[Any], read: Callable[[Readings], Any]) -> Source[Any]:
    """The entry ``source`` of the list, read by ``read``."""
    return replace(source, make=lambda _settings, _clock: read)


def no_host(_others: Readings) -> HostAndProcesses:
    """A host without any values."""
    return HostAndProcesses(machine=None, processes={})


def poller(
    *,
    directories: tuple[str, ...] = ("/nowhere",),
    clock: Clock | None = None,
    values: dict[str, Any] | None = None,
    **reads: Callable[[Readings], Any],
) -> Poller:
    """A poller in which ``records``, ``host``, ``nvml`` and ``observed`` read as given.

    One that is not given is the real one where it is on by default, and else left alone.
    """
    listed = [instead(one, reads[one.name]) if one.name in reads else one for one in SOURCES]
    chosen = {
        **({"gpu_interval": 1.0} if NVML.name in reads else {}),
        **({"observe": True} if OBSERVED.name in reads else {}),
        **(values or {}),
    }
    return Poller(settings(*directories, **chosen), sources=listed, clock=clock)


def records(*readings: RecordReading) -> Callable[[Readings], RecordsReading]:
    """A records source that reads ``readings`` at every poll."""
    return lambda _others: RecordsReading(records=readings)
