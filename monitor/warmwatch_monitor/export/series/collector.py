"""Warmwatch's series in somebody else's registry.

For a program that has a ``/metrics`` of its own, made by prometheus_client: it registers a
:class:`SnapshotCollector`, and what it serves has the same families as the daemon's, read from the
latest Snapshot at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from warmwatch_monitor.export.series.family import Distribution, Family
from warmwatch_monitor.export.series.labels import Labels
from warmwatch_monitor.export.series.tables import families
from warmwatch_monitor.model import Snapshot


class SnapshotCollector(Collector):
    """Collects from ``latest``, which returns the newest Snapshot at once, as a poller's does.

    ``version`` is for ``warmwatch_build_info``; without it there is none.
    """

    def __init__(self, latest: Callable[[], Snapshot], version: str | None = None) -> None:
        self._latest, self._version = latest, version

    def collect(self) -> Iterator[Metric]:
        """Every family with a sample, in the order of the daemon's own /metrics."""
        for family in families(self._latest(), self._version):
            if not family.empty:
                yield _metric(family)


def _metric(family: Family) -> Metric:
    metric = Metric(family.name, family.help, family.type)
    name = family.sample_name
    for labels, column, value in family.samples():
        if isinstance(value, Distribution):
            metric.samples += _histogram(family, labels, column, value)
        else:
            metric.samples.append(Sample(name, labels.with_own(family.label, column), value))
    return metric


def _histogram(
    family: Family, labels: Labels, column: str, value: Distribution
) -> Iterator[Sample]:
    own = labels.with_own(family.label, column)
    bounds = (*map(floatToGoString, family.bounds), "+Inf")
    for bound, count in zip(bounds, (*value.upto, value.count), strict=True):
        yield Sample(f"{family.name}_bucket", {**own, "le": bound}, count)
    yield Sample(f"{family.name}_count", own, value.count)
    yield Sample(f"{family.name}_sum", own, value.sum)
