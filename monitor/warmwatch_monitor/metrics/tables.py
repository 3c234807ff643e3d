"""All metric families of a Snapshot, in the order of ``/metrics``: those of ranks, of GPUs, of the
host, of the monitor; of the daemon only in its own answer. A collector for other registries.

A GPU's labels are ``uuid`` and ``gpu``, NVML's index of the board, which a MIG device shares with
it. A series exists only if its value is known.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from warmwatch_monitor.figures.machine import ExportHealth, Host, SourceHealth
from warmwatch_monitor.metrics import rank
from warmwatch_monitor.metrics.families import (
    Distribution,
    Family,
    Labels,
    Series,
    encode,
    gauge,
    series_of,
)
from warmwatch_monitor.model.budgets import LEFT_OUT
from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.model.snapshot import RecordRoom, Snapshot


class DaemonSeries:
    """The series of this process.

    ``process_...`` have the names that Prometheus' client libraries share.
    """

    def __init__(self) -> None:
        # once: it computes the start of the process from the boot time, which follows the clock
        self._process = ProcessCollector(registry=None)
        self._place = Labels(
            {
                "daemon_host": os.environ.get("NODE_NAME") or socket.gethostname(),
                "daemon_namespace": os.environ.get("POD_NAMESPACE", ""),
                "daemon_pod": os.environ.get("POD_NAME", ""),
            }
        )

    def families(self, snapshot: Snapshot) -> Iterator[Family]:
        place = Family(
            name="warmwatch_daemon",
            help="Where the daemon runs: its host, and inside Kubernetes its namespace and pod.",
            type="info",
        )
        place.add(self._place, 1)
        yield place
        clock = Family(
            name="warmwatch_time_seconds",
            help="The host's clock when the daemon last read its records. All timestamps are of "
            "this clock; those of a rank, as it was set when that attached.",
            type="gauge",
        )
        clock.add(Labels({}), snapshot.epoch or None)  # there is none before the first poll
        yield clock
        for metric in self._process.collect():
            counts = metric.type == "counter"
            family = Family(
                name=metric.name, help=metric.documentation, type="counter" if counts else "gauge"
            )
            for sample in metric.samples:
                family.add(Labels(sample.labels), sample.value)
            yield family


def _by_name(name: str, gpu: GpuReading) -> dict[str, float]:
    return dict(getattr(gpu, name))


_BY_NAME = ("clocks_hertz", "ecc_errors", "throttled")
GPU_SERIES: tuple[Series[GpuReading], ...] = (
    *series_of(
        GpuReading,
        lambda gpu: gpu,
        {name: partial(_by_name, name) for name in _BY_NAME},
    ),
    gauge(
        "warmwatch_gpu_lost",
        "Whether the driver has lost the GPU: all its other series are absent then.",
        lambda gpu: gpu.trouble is not None,
    ),
)


def gpu_families(gpus: Sequence[GpuReading]) -> Iterator[Family]:
    """Every family of ``gpus``, those without a sample too."""
    labelled = [(Labels({"gpu": str(gpu.index), "uuid": gpu.uuid}), gpu) for gpu in gpus]
    info = Family(name="warmwatch_gpu", help="The GPU and its driver.", type="info")
    for labels, gpu in labelled:
        info.add(Labels({**labels.values, **_facts(gpu)}), 1)
    yield info
    for series in GPU_SERIES:
        yield series.family(labelled)


def _facts(gpu: GpuReading) -> dict[str, str]:
    """Labels of a GPU; a label is empty, which means absent, if its value is not known."""
    return {
        "name": gpu.name or "",
        "driver": gpu.driver or "",
        "pci_bus_id": gpu.pci_bus_id or "",
        "parent": gpu.parent or "",
        "profile": gpu.profile or "",
    }


def _itself(value: Any) -> Any:
    return value


HOST_SERIES: tuple[Series[Host], ...] = tuple(series_of(Host, _itself))
SOURCE_SERIES: tuple[Series[SourceHealth], ...] = tuple(series_of(SourceHealth, _itself))
ROOM_SERIES: tuple[Series[RecordRoom], ...] = tuple(series_of(RecordRoom, _itself))
EXPORT_SERIES: tuple[Series[ExportHealth], ...] = tuple(series_of(ExportHealth, _itself))


def host_families(host: Host | None) -> Iterator[Family]:
    """Every family of ``host``, those without a sample too."""
    hosts = [] if host is None else [(Labels({}), host)]
    for series in HOST_SERIES:
        yield series.family(hosts)


_LIKELY = {"true": True, "false": False, "unknown": None}


def health_families(snapshot: Snapshot, version: str | None) -> Iterator[Family]:
    """Every family, those without a sample too; no build without a ``version``."""
    yield _observed(snapshot)
    sources = [(Labels({"source": health.source}), health) for health in snapshot.sources]
    for of_source in SOURCE_SERIES:
        yield of_source.family(sources)
    rooms = [(Labels({"directory": room.directory}), room) for room in snapshot.rooms]
    for of_room in ROOM_SERIES:
        yield of_room.family(rooms)
    identities = Family(
        name="warmwatch_record_directory",
        help="A record directory that was read; directory_id is the same for all daemons that read "
        "this one.",
        type="info",
    )
    for labels, room in rooms:
        # hashed: the boot's id, a part of it, is not for everybody who reads /metrics
        hashed = hashlib.blake2b(room.identity.encode(), digest_size=6).hexdigest()
        identities.add(Labels({**labels.values, "directory_id": hashed}), 1)
    yield identities
    refused = Family(
        name="warmwatch_records_refused", help="Records that cannot be read.", type="gauge"
    )
    refused.add(Labels({}), len(snapshot.refusals) + snapshot.more_refusals)
    yield refused
    left_out = Family(
        name="warmwatch_left_out",
        help="What was left out because it is beyond a budget, or a GPU that NVML does not know.",
        type="counter",
        label="what",
        columns=LEFT_OUT,
    )
    if snapshot.left_out_total:
        left_out.rows.append((Labels({}), [snapshot.left_out_total.get(k) for k in LEFT_OUT]))
    yield left_out
    exports = [(Labels({"export": health.export}), health) for health in snapshot.exports]
    for of_export in EXPORT_SERIES:
        yield of_export.family(exports)
    build = Family(name="warmwatch_build", help="The version of the monitor.", type="info")
    if version:
        build.add(Labels({"version": version}), 1)
    yield build


def _observed(snapshot: Snapshot) -> Family:
    """Unattached trainings; no samples if detection is off."""
    family = Family(
        name="warmwatch_observed_processes",
        help="Processes that look like trainings without the agent, by whether they are likely to "
        "compile, as far as that shows from outside.",
        type="gauge",
        label="likely_compiling",
        columns=tuple(_LIKELY),
    )
    if any(health.source == "observed" and health.up for health in snapshot.sources):
        likely = [training.likely_compiling for training in snapshot.observed]
        family.rows.append((Labels({}), [likely.count(value) for value in _LIKELY.values()]))
    return family


def families(snapshot: Snapshot, version: str | None = None) -> Iterator[Family]:
    """Every family, including those without a sample.

    ``version`` is Warmwatch's own, for ``warmwatch_build_info``; without it there is none.
    """
    yield from rank.families(snapshot)
    yield from rank.end_families(snapshot)
    yield from gpu_families(snapshot.gpus)
    yield from host_families(snapshot.host)
    yield from health_families(snapshot, version)


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
