"""CPU time to encode one Snapshot: text of /metrics, OTLP, a registry's collection, /status.

Each is divided by that of the text: the share of a core differs between machines, the ratios do
not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.figure import Figure
from support import builders as b
from warmwatch_monitor.metrics import SnapshotCollector, render
from warmwatch_monitor.metrics.otlp import Converter
from warmwatch_monitor.status.document import status

ROUNDS = 7


def measure() -> Iterator[Figure]:
    for ranks in (8, 512):
        snapshot = b.snapshot(*(b.view(b.as_rank(b.WARM, rank, ranks)) for rank in range(ranks)))
        converter, collector = Converter("0", "here"), SnapshotCollector(lambda: snapshot)  # noqa: B023
        text = _cpu_ms(lambda: render(snapshot, None))  # noqa: B023 - called before the next round
        yield Figure(name=f"exports: /metrics of {ranks} ranks, CPU ms", value=text)
        for name, limit, work in (
            ("OTLP", 4.0, lambda: converter.convert(snapshot)),  # noqa: B023
            ("a collection", 4.0, lambda: list(collector.collect())),  # noqa: B023
            ("/status", 1.0, lambda: status(snapshot)),  # noqa: B023
        ):
            spent = _cpu_ms(work)
            yield Figure(
                name=f"exports: {name} of {ranks} ranks, times the text",
                value=spent / text,
                limit=limit,
                detail=f"{spent:.1f} ms",
            )


def _cpu_ms(work: Callable[[], object]) -> float:
    """The least of some rounds, so that other load counts for little."""
    spent = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent) * 1e3
