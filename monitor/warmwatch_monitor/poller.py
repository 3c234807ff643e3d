"""The poller: when to read what, how each source fares, and the Snapshot that comes of it.

Each source has a thread of its own, so one that hangs holds up nothing but itself; the publisher
wakes when the records were read, or when they have not been for too long, judges, and publishes one
Snapshot by one assignment. What a source last read counts until it fails or falls silent; from then
on it is absent and the source's health says why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.feed import Feed
from warmwatch_monitor.model import (
    GpuReading,
    HostReading,
    ObservedTraining,
    ProcessReading,
    Snapshot,
)
from warmwatch_monitor.runs import group
from warmwatch_monitor.sources.records import RecordsReading
from warmwatch_monitor.spending import Account, settle

_HOST_INTERVAL = 1.0
_OBSERVED_INTERVAL = 2.0
_ONCE_SECONDS = 5.0
_LONGEST_SILENCE = 1.0
_STOP_SECONDS = 2.0


class Records(Protocol):
    """The records source."""

    def read(self) -> RecordsReading: ...


class Host(Protocol):
    """The host source, asked for the processes of living ranks."""

    def read(self, pids: list[int], /) -> Mapping[int, ProcessReading]: ...


class Gpus(Protocol):
    """The GPU source."""

    def read(self) -> tuple[GpuReading, ...]: ...


class Observed(Protocol):
    """The source of trainings without an agent, told which pids have one."""

    def read(
        self, attached: list[int], gpus: tuple[GpuReading, ...], /
    ) -> tuple[ObservedTraining, ...]: ...


class Poller:
    """Polls until :meth:`stop`. ``interval``, ``gpu_interval``: seconds between two looks."""

    def __init__(
        self,
        records: Records,
        host: Host,
        gpus: Gpus | None = None,
        observed: Observed | None = None,
        *,
        machine: Callable[[], HostReading | None] | None = None,
        directories: tuple[str, ...] = (),
        interval: float = 0.2,
        gpu_interval: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self._clock, self._interval = clock or Clock(), interval
        self._directories = directories
        self._records = Feed("records", records.read, self._clock, interval)
        host_interval = max(interval, _HOST_INTERVAL)
        self._host = Feed(
            "host",
            lambda: (host.read(self._living()), machine() if machine else None),
            self._clock,
            host_interval,
        )
        self._gpus = None if gpus is None else Feed("nvml", gpus.read, self._clock, gpu_interval)
        self._observed = (
            None
            if observed is None
            else Feed(
                "observed",
                lambda: observed.read(self._living(), self._known_gpus()),
                self._clock,
                max(interval, _OBSERVED_INTERVAL),
            )
        )
        self._stopping, self._fresh = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._accounts: dict[str, Account] = {}
        self._latest = replace(self._assemble(), epoch=0.0)

    def latest(self) -> Snapshot:
        """The latest Snapshot; before the first look one of epoch 0 with nothing in it."""
        return self._latest

    def poll_once(self) -> Snapshot:
        """Read every source once, here and now, and publish: for commands without a daemon."""
        self._records.read()
        self._host.read()
        if self._gpus is not None:  # a driver that hangs must not hold up a question
            thread = threading.Thread(target=self._gpus.read, name="warmwatch-nvml", daemon=True)
            thread.start()
            thread.join(_ONCE_SECONDS)
        if self._observed is not None:
            self._observed.read()
        return self._publish()

    def start(self) -> None:
        """Begin to poll, in threads that die with the process."""
        work: dict[str, Callable[[], None]] = {
            "records": lambda: self._records.follow(self._stopping, self._fresh.set),
            "host": lambda: self._host.follow(self._stopping, _nothing),
            "publisher": self._publish_until_stopped,
        }
        if (gpus := self._gpus) is not None:
            work["nvml"] = lambda: gpus.follow(self._stopping, _nothing)
        if (observed := self._observed) is not None:
            work["observed"] = lambda: observed.follow(self._stopping, _nothing)
        for name, target in work.items():
            thread = threading.Thread(target=target, name=f"warmwatch-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads; one that hangs in a source is left behind."""
        self._stopping.set()
        self._fresh.set()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def _publish_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._fresh.wait(max(_LONGEST_SILENCE, 2 * self._interval))
            self._fresh.clear()
            self._publish()

    def _publish(self) -> Snapshot:
        self._latest = snapshot = self._assemble()
        return snapshot

    def _assemble(self) -> Snapshot:
        now_ns, epoch = self._clock.monotonic_ns(), self._clock.epoch()
        found, records_health = self._records.current(now_ns)
        of_host, host_health = self._host.current(now_ns)
        processes, machine = of_host or ({}, None)
        found = found or RecordsReading()
        gpus, gpu_health = self._gpus.current(now_ns) if self._gpus else (None, None)
        runs = group(found.records, processes, now_ns, gpus or ())
        self._accounts, runs = settle(self._accounts, runs, now_ns)
        strangers, observed_health = (
            self._observed.current(now_ns) if self._observed else (None, None)
        )
        health = (records_health, host_health, gpu_health, observed_health)
        return Snapshot(
            epoch=epoch,
            now_ns=now_ns,
            runs=runs,
            refusals=found.refusals,
            gpus=gpus or (),
            observed=strangers or (),
            host=machine,
            sources=tuple(one for one in health if one is not None),
            directories=self._directories,
        )

    def _known_gpus(self) -> tuple[GpuReading, ...]:
        found, _ = self._gpus.current(self._clock.monotonic_ns()) if self._gpus else (None, None)
        return found or ()

    def _living(self) -> list[int]:
        found, _ = self._records.current(self._clock.monotonic_ns())
        records = found.records if found else ()
        return [record.pid for record in records if record.pid is not None]


def _nothing() -> None:
    """Nobody waits for this source."""
