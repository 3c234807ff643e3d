"""When each cumulative series began to count: OpenTelemetry is told, Prometheus never asks.

A rank's numbers begin with its record, at the agent's attaching: that is exact, holds over restarts
of the monitor, and changes when the rank is started again. Where no series says when the counting
began (a GPU's joules count from the driver's loading), it is the moment at which the series was
first sent, and again the moment at which its value fell: so OpenTelemetry's data model has it for
a start that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warmwatch_monitor.export.series import Family, Labels

ATTACHED = "warmwatch_attach_timestamp_seconds"
# Of a rank, but counted from the process's own start and from when the monitor first saw it.
NOT_SINCE_ATTACHING = frozenset(
    {"warmwatch_process_cpu_seconds_total", "warmwatch_compile_energy_joules_total"}
)

_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class Starts:
    """Starts in nanoseconds since the epoch. :meth:`at` once for each Snapshot, then :meth:`of`."""

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
