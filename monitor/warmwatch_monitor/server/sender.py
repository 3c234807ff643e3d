"""Sends metrics on an interval (OTLP) in a separate thread, and reports the export's health."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from warmwatch import __version__
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import ExportError, MissingExtraError
from warmwatch_monitor.base.settings import Address
from warmwatch_monitor.figures.machine import ExportHealth
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline.poller import Poller

_FIRST_POLL_SECONDS = 0.05
_STOP_SECONDS = 3.0


class Exporter(Protocol):
    """A receiver of Snapshots."""

    name: str
    interval: float

    def export(self, snapshot: Snapshot, /) -> None:
        """Send ``snapshot``. Raises ExportError if the receiver did not accept it."""

    def close(self) -> None:
        """Cancel the export in progress; from any thread."""


class Sender:
    """Sends ``read()`` through ``exporter``: immediately, on its interval, and at the end."""

    def __init__(self, exporter: Exporter, read: Callable[[], Snapshot]) -> None:
        self._exporter, self._read, self._clock = exporter, read, Clock()
        self._health = ExportHealth(export=exporter.name)
        self._latest: tuple[Snapshot, ExportHealth, Snapshot] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._work, name=f"warmwatch-{exporter.name}", daemon=True
        )

    def latest(self) -> Snapshot:
        """The latest Snapshot with this export's health; the same object until either changes."""
        read, health, row = self._read(), self._health, self._latest
        if row is None or row[0] is not read or row[1] is not health:
            self._latest = row = (read, health, replace(read, exports=(health,)))
        return row[2]

    def start(self) -> None:
        """Start sending in a daemon thread."""
        self._thread.start()

    def stop(self) -> None:
        """Send the latest Snapshot and stop; does not wait for a receiver that does not answer."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)
        self._exporter.close()

    def _work(self) -> None:
        while not self._read().epoch and not self._stopping.wait(_FIRST_POLL_SECONDS):
            pass  # there was no poll yet
        while not self._stopping.is_set():
            began_ns = self._clock.monotonic_ns()
            self._send()
            spent = (self._clock.monotonic_ns() - began_ns) / 1e9
            self._stopping.wait(max(0.01, self._exporter.interval - spent))
        self._send()

    def _send(self) -> None:
        snapshot = self.latest()
        if not snapshot.epoch:  # stopped before the first poll
            return
        last_success, problem = self._health.last_success, None
        try:
            self._exporter.export(snapshot)
        except ExportError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - a failing export is a fact to show, not a crash
            problem = f"{type(error).__name__}: {error}"
        else:
            last_success = self._clock.epoch()
        self._health = ExportHealth(
            export=self._exporter.name,
            up=problem is None,
            last_success=last_success,
            error=problem,
        )


def make_sender(poller: Poller, bound: Address) -> Sender:
    """A sender of the poller's Snapshots, from the daemon that listens on ``bound``.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
        UsageError: an OpenTelemetry variable has an invalid value.
    """
    try:
        from warmwatch_monitor.metrics.otlp import OtlpExporter  # an extra of its own
    except ImportError as error:
        raise MissingExtraError(
            f"what OTLP needs is not installed ({error}); get it with: "
            "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        ) from None
    instance = f"{socket.gethostname()}:{bound.port}"  # as in Prometheus
    return Sender(OtlpExporter(os.environ, __version__, instance), poller.latest)
