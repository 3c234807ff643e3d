"""A Snapshot as OpenTelemetry's metrics.

What there is to send are the families that /metrics is written from: names, types, labels and
values are the same, and there is no second table of them.

Names stay those of Prometheus, ``_total`` and ``_info`` included, so that a backend which makes
series of them again makes the same ones. An info family is a gauge of 1: its labels belong to a
rank or a GPU, of which one export has many, and a resource's attributes to the whole export.
"""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from warmwatch_monitor.export.series import Distribution, Family, families
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.push.otlp.starts import Starts

# By the word that a name ends with; no other name has one. Of a gauge in "1", a backend that makes
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
    """Converts one Snapshot after the other.

    ``version`` is Warmwatch's own; ``instance`` tells this daemon from others.
    """

    def __init__(self, version: str, instance: str) -> None:
        own = Resource.create(
            {
                "service.name": "warmwatch",
                "service.version": version,
                "service.instance.id": instance,
            }
        )
        # `create` reads the environment too, but puts it behind what it is given
        self._resource = own.merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("warmwatch", version)
        self._version = version
        self._starts = Starts()

    def convert(self, snapshot: Snapshot) -> MetricsData:
        """Every series of /metrics, as of the Snapshot's moment."""
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
    """One point of each set of labels; a family counts up to each bound, OTLP between two."""
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
            explicit_bounds=list(family.bounds),
            min=None,  # type: ignore[arg-type]  # not known: the encoder leaves it out
            max=None,  # type: ignore[arg-type]
        )
