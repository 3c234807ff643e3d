"""OTLP export with OpenTelemetry's SDK. Imported only if the export is enabled."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.environment_variables import OTEL_METRIC_EXPORT_INTERVAL
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from warmwatch_monitor.base.errors import ExportError, UsageError
from warmwatch_monitor.metrics.families import Distribution, Family, Labels
from warmwatch_monitor.metrics.tables import families
from warmwatch_monitor.model.snapshot import Snapshot

ATTACHED = "warmwatch_attach_timestamp_seconds"
# Rank series that count from the process's start, or from when the monitor first saw it.
NOT_SINCE_ATTACHING = frozenset(
    {"warmwatch_process_cpu_seconds_total", "warmwatch_compile_energy_joules_total"}
)

_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class Starts:
    """Starts in nanoseconds since the epoch. Call :meth:`at` once per Snapshot, then :meth:`of`."""

    def __init__(self) -> None:
        self._at_ns = 0
        self._attached: dict[tuple[str, str], int] = {}
        self._before: dict[_Key, tuple[int, float]] = {}
        self._seen: dict[_Key, tuple[int, float]] = {}

    def at(self, at_ns: int, families: Iterable[Family]) -> None:
        """The Snapshot's moment, and its families, which have ``ATTACHED`` among them."""
        self._at_ns, self._before, self._seen = at_ns, self._seen, {}
        self._attached = {
            _rank(labels.values): round(value * 1e9)
            for family in families
            if family.name == ATTACHED
            for labels, _, value in family.samples()
            if isinstance(value, (int, float))
        }

    def of(self, name: str, labels: Labels, column: str, value: float) -> int:
        """When the series ``name`` with ``labels``, and ``column`` of its own, began to count."""
        attached_ns = self._attached.get(_rank(labels.values))
        if attached_ns is not None and name not in NOT_SINCE_ATTACHING:
            return attached_ns
        key = (name, column, tuple(labels.values.items()))
        start_ns, last = self._before.get(key, (self._at_ns, value))
        if value < last:
            start_ns = self._at_ns
        self._seen[key] = (start_ns, value)
        return start_ns


def _rank(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("run", ""), labels.get("rank", "")


# The unit by the last word of the name; other names have none. For a gauge in "1", a backend for
# Prometheus' names appends `_ratio`, so only what is called so has that.
_UNITS = {
    "seconds": "s",
    "bytes": "By",
    "joules": "J",
    "watts": "W",
    "hertz": "Hz",
    "celsius": "Cel",
    "ratio": "1",
}


class Converter:
    """Converts successive Snapshots.

    ``version``: of Warmwatch. ``instance``: distinguishes this daemon from others.
    """

    def __init__(self, version: str, instance: str) -> None:
        own = Resource.create(
            {
                "service.name": "warmwatch",
                "service.version": version,
                "service.instance.id": instance,
            }
        )
        # `create` also reads the environment; its arguments take precedence
        self._resource = own.merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("warmwatch", version)
        self._version = version
        self._starts = Starts()

    def convert(self, snapshot: Snapshot) -> MetricsData:
        """Every series of /metrics but those of the daemon itself, as of the Snapshot's moment."""
        sent = [family for family in families(snapshot, self._version) if not family.empty]
        at_ns = round(snapshot.epoch * 1e9)
        self._starts.at(at_ns, sent)
        metrics = [_metric(family, at_ns, self._starts) for family in sent]
        scope = ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        resource = self._resource
        return MetricsData([ResourceMetrics(resource, [scope], resource.schema_url)])


def _metric(family: Family, at_ns: int, starts: Starts) -> Metric:
    unit = _UNITS.get(family.name.rpartition("_")[2], "")
    data = _data(family, at_ns, starts)
    return Metric(name=family.sample_name, description=family.help, unit=unit, data=data)


def _data(family: Family, at_ns: int, starts: Starts) -> Sum | Gauge | Histogram:
    cumulative = AggregationTemporality.CUMULATIVE
    if family.type == "counter":
        return Sum(list(_numbers(family, at_ns, starts)), cumulative, True)
    if family.type == "histogram":
        return Histogram(list(_distributions(family, at_ns, starts)), cumulative)
    return Gauge(list(_numbers(family, at_ns, None)))


def _numbers(family: Family, at_ns: int, starts: Starts | None) -> Iterator[NumberDataPoint]:
    """A gauge has no start."""
    name, label = family.sample_name, family.label
    for labels, column, value in family.samples():
        assert not isinstance(value, Distribution)
        yield NumberDataPoint(
            attributes=labels.with_own(label, column),
            start_time_unix_nano=starts.of(name, labels, column, value) if starts else 0,
            time_unix_nano=at_ns,
            value=float(value),
        )


def _distributions(family: Family, at_ns: int, starts: Starts) -> Iterator[HistogramDataPoint]:
    """One point for each set of labels. Families count up to a bound, OTLP between two bounds."""
    for labels, column, value in family.samples():
        assert isinstance(value, Distribution)
        upto = (*value.upto, value.count)
        yield HistogramDataPoint(
            attributes=labels.with_own(family.label, column),
            start_time_unix_nano=starts.of(family.name, labels, column, value.count),
            time_unix_nano=at_ns,
            count=value.count,
            sum=value.sum,
            bucket_counts=[b - a for a, b in zip((0, *upto), upto, strict=False)],
            explicit_bounds=list(family.bounds if value.upto else ()),
            min=None,  # type: ignore[arg-type]  # not known: the encoder leaves it out
            max=None,  # type: ignore[arg-type]
        )


_DEFAULT_INTERVAL = "60000"


class OtlpExporter:
    """``version``: of Warmwatch. ``instance``: distinguishes this daemon from others.

    Raises:
        UsageError: an OpenTelemetry variable that is read here has an invalid value.
    """

    name = "otlp"

    def __init__(self, environ: Mapping[str, str], version: str, instance: str) -> None:
        self.interval = _interval(environ)
        self._converter = Converter(version, instance)
        self._exporter = OTLPMetricExporter()
        self._failures = _FailureLog()
        # this handler also stops logging's fallback to stderr at each failure
        logging.getLogger("opentelemetry").addHandler(self._failures)

    def export(self, snapshot: Snapshot) -> None:
        """Send ``snapshot``. Raises ExportError if the receiver did not accept it."""
        self._failures.lines.clear()
        result = self._exporter.export(self._converter.convert(snapshot))
        if result is not MetricExportResult.SUCCESS:
            raise ExportError(" ".join(self._failures.lines) or "the export was not accepted")

    def close(self) -> None:
        """Cancel the export in progress; from any thread."""
        self._exporter.shutdown()


class _FailureLog(logging.Handler):
    """Collects why an export failed: the exporter only logs the reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: deque[str] = deque(maxlen=2)  # the last attempt, and that it gave up

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _interval(environ: Mapping[str, str]) -> float:
    """The export interval in seconds; the variable is in milliseconds."""
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
