"""All metric families of a Snapshot, in the order of ``/metrics``; a collector for other
registries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from warmwatch_monitor.metrics import gpu, host, rank
from warmwatch_monitor.metrics.daemon import DaemonSeries
from warmwatch_monitor.metrics.families import Distribution, Family, Labels
from warmwatch_monitor.metrics.text import encode
from warmwatch_monitor.model import Snapshot


def families(snapshot: Snapshot, version: str | None = None) -> Iterator[Family]:
    """Every family, including those without a sample.

    ``version`` is Warmwatch's own, for ``warmwatch_build_info``; without it there is none.
    """
    yield from rank.families(snapshot)
    yield from rank.end_families(snapshot)
    yield from gpu.families(snapshot.gpus)
    yield from host.host_families(snapshot.host)
    yield from host.health_families(snapshot, version)


def render(
    snapshot: Snapshot,
    accept: str | None,
    *,
    version: str | None = None,
    daemon: DaemonSeries | None = None,
) -> tuple[bytes, str]:
    """The body of ``/metrics`` and its content type, negotiated from the ``Accept`` header."""
    own = daemon.families(snapshot) if daemon else ()
    return encode(chain(families(snapshot, version), own), accept)


class SnapshotCollector(Collector):
    """Collects from ``latest``, which returns the newest Snapshot immediately, such as a poller's.

    ``version`` is for ``warmwatch_build_info``; without it there is none.
    """

    def __init__(self, latest: Callable[[], Snapshot], version: str | None = None) -> None:
        self._latest, self._version = latest, version

    def collect(self) -> Iterator[Metric]:
        """Every family with a sample, in the order of the daemon's ``/metrics``."""
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
    bounds = (*map(floatToGoString, family.bounds if value.upto else ()), "+Inf")
    for bound, count in zip(bounds, (*value.upto, value.count), strict=True):
        yield Sample(f"{family.name}_bucket", {**own, "le": bound}, count)
    yield Sample(f"{family.name}_count", own, value.count)
    yield Sample(f"{family.name}_sum", own, value.sum)
