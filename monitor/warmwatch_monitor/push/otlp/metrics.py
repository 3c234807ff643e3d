"""A Snapshot as OpenTelemetry's metrics.

What there is to send is what /metrics says, read back from its own text: names, types, labels and
values are the same, and there is no second table of them. That costs a moment once in an export
interval, in the sender's thread; a scrape pays nothing for it.

Names stay those of Prometheus, ``_total`` and ``_info`` included, so that a backend which makes
series of them again makes the same ones. An info family is a gauge of 1: its labels belong to a
rank or a GPU, of which one export has many, and a resource's attributes to the whole export.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from warmwatch_monitor.export.prometheus import render
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.push.otlp.starts import ATTACHED, Starts

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
        body, _ = render(snapshot, None, version=self._version)
        families = list(text_string_to_metric_families(body.decode()))
        at_ns = round(snapshot.epoch * 1e9)
        attached = (one for family in families if family.name == ATTACHED for one in family.samples)
        self._starts.at(at_ns, attached)
        metrics = [_metric(family, at_ns, self._starts) for family in families]
        scope = ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        resource = self._resource
        return MetricsData([ResourceMetrics(resource, [scope], resource.schema_url)])


def _metric(family: Family, at_ns: int, starts: Starts) -> Metric:
    name, data = family.name, _data(family, at_ns, starts)
    unit = _UNITS.get(name.rpartition("_")[2], "")
    name += "_total" if family.type == "counter" else ""  # the parser has taken it away
    return Metric(name=name, description=family.documentation, unit=unit, data=data)


def _data(family: Family, at_ns: int, starts: Starts) -> Sum | Gauge | Histogram:
    cumulative, samples = AggregationTemporality.CUMULATIVE, family.samples
    if family.type == "counter":
        return Sum([_number(s, at_ns, starts.of(s)) for s in samples], cumulative, True)
    if family.type == "gauge":
        return Gauge([_number(s, at_ns) for s in samples])
    if family.type == "histogram":
        return Histogram(list(_distributions(samples, at_ns, starts)), cumulative)
    raise ValueError(f"{family.name} is a {family.type}, and no OTLP is made of such")


def _number(sample: Sample, at_ns: int, start_ns: int = 0) -> NumberDataPoint:
    """A gauge has no start."""
    return NumberDataPoint(
        attributes=sample.labels,
        start_time_unix_nano=start_ns,
        time_unix_nano=at_ns,
        value=sample.value,
    )


def _distributions(
    samples: Iterable[Sample], at_ns: int, starts: Starts
) -> Iterator[HistogramDataPoint]:
    """One point of each set of labels; the text has its buckets up to each bound."""
    buckets: list[tuple[float, int]] = []
    count = 0
    for sample in samples:  # of each set: its buckets in order, its count, its sum
        if sample.name.endswith("_bucket"):
            buckets.append((float(sample.labels["le"]), int(sample.value)))
        elif sample.name.endswith("_count"):
            count = int(sample.value)
        else:
            upto = [number for _, number in buckets]
            yield HistogramDataPoint(
                attributes=sample.labels,
                start_time_unix_nano=starts.of(sample),
                time_unix_nano=at_ns,
                count=count,
                sum=sample.value,
                bucket_counts=[b - a for a, b in zip([0, *upto], upto, strict=False)],
                explicit_bounds=[bound for bound, _ in buckets[:-1]],
                min=None,  # type: ignore[arg-type]  # not known: the encoder leaves it out
                max=None,  # type: ignore[arg-type]
            )
            buckets = []
