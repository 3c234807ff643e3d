"""Sends Snapshots with OpenTelemetry's own exporter, over HTTP, as protobuf.

Where to, with which headers, certificates, compression and timeout, say OpenTelemetry's own
variables; its exporter reads them, and it retries. Only the interval is read here: in the SDK it
belongs to a reader of instruments, and there are no instruments.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.environment_variables import OTEL_METRIC_EXPORT_INTERVAL
from opentelemetry.sdk.metrics.export import MetricExportResult

from warmwatch_monitor.errors import ExportError, UsageError
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.push.otlp.metrics import Converter

_DEFAULT_INTERVAL = "60000"


class OtlpExporter:
    """``version`` is Warmwatch's own; ``instance`` tells this daemon from others.

    Raises:
        UsageError: a variable of OpenTelemetry's that is read here cannot be used.
    """

    name = "otlp"

    def __init__(self, environ: Mapping[str, str], version: str, instance: str) -> None:
        self.interval = _interval(environ)
        self._converter = Converter(version, instance)
        self._exporter = OTLPMetricExporter()
        self._said = _Said()
        # with this handler none of it is on stderr, where it would be each time
        logging.getLogger("opentelemetry").addHandler(self._said)

    def export(self, snapshot: Snapshot) -> None:
        """Send it. Raises ExportError where it was not taken."""
        self._said.lines.clear()
        result = self._exporter.export(self._converter.convert(snapshot))
        if result is not MetricExportResult.SUCCESS:
            raise ExportError(" ".join(self._said.lines) or "it was not taken")

    def close(self) -> None:
        """Give up what is being tried; from any thread."""
        self._exporter.shutdown()


class _Said(logging.Handler):
    """Why an export failed: the exporter logs it, its result says no more than that it did."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: deque[str] = deque(maxlen=2)  # the last try, and that it was the last

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _interval(environ: Mapping[str, str]) -> float:
    """In seconds; the variable is in milliseconds."""
    text = environ.get(OTEL_METRIC_EXPORT_INTERVAL) or _DEFAULT_INTERVAL
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not 0 < milliseconds < math.inf:
        raise UsageError(
            f"{OTEL_METRIC_EXPORT_INTERVAL}: {text!r} is not a number of milliseconds above 0"
        )
    return milliseconds / 1000
