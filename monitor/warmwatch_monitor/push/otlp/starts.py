"""When each cumulative series began to count: OpenTelemetry is told, Prometheus never asks.

A rank's numbers begin with its record, at the agent's attaching: that is exact, holds over restarts
of the monitor, and changes when the rank is started again. Where no series says when the counting
began (a GPU's joules count from the driver's loading), it is the moment at which the series was
first sent, and again the moment at which its value fell: so OpenTelemetry's data model has it for
a start that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.samples import Sample

ATTACHED = "warmwatch_attach_timestamp_seconds"
# Of a rank, but counted from the process's own start and from when the monitor first saw it.
NOT_SINCE_ATTACHING = frozenset(
    {"warmwatch_process_cpu_seconds_total", "warmwatch_compile_energy_joules_total"}
)

_Key = tuple[str, frozenset[tuple[str, str]]]


class Starts:
    """Starts in nanoseconds since the epoch. :meth:`at` once for each Snapshot, then :meth:`of`."""

    def __init__(self) -> None:
        self._at_ns = 0
        self._attached: dict[tuple[str, str], int] = {}
        self._before: dict[_Key, tuple[int, float]] = {}
        self._seen: dict[_Key, tuple[int, float]] = {}

    def at(self, at_ns: int, attached: Iterable[Sample]) -> None:
        """The Snapshot's moment, and its samples of ``ATTACHED``."""
        self._at_ns, self._before, self._seen = at_ns, self._seen, {}
        self._attached = {_rank(one.labels): round(one.value * 1e9) for one in attached}

    def of(self, sample: Sample) -> int:
        """When this series began to count."""
        attached_ns = self._attached.get(_rank(sample.labels))
        if attached_ns is not None and sample.name not in NOT_SINCE_ATTACHING:
            return attached_ns
        key = (sample.name, frozenset(sample.labels.items()))
        start_ns, last = self._before.get(key, (self._at_ns, sample.value))
        if sample.value < last:
            start_ns = self._at_ns
        self._seen[key] = (start_ns, sample.value)
        return start_ns


def _rank(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("run", ""), labels.get("rank", "")
