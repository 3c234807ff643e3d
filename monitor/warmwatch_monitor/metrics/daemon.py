"""Metrics of the daemon itself: its process, its place, and its clock. Only in its ``/metrics``."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

from prometheus_client.process_collector import ProcessCollector

from warmwatch_monitor.metrics.families import Family, Labels
from warmwatch_monitor.model import Snapshot


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
