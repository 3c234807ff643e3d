"""The one table of families: a Snapshot as everything that /metrics lists, in its order.

Built anew for each scrape from one Snapshot, so all series are of one moment; nothing is registered
and nothing is kept. A Snapshot holds each (run, rank) once, so no series appears twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.series import ends, gpu, health, host, rank
from warmwatch_monitor.export.series.family import Family
from warmwatch_monitor.export.series.text import encode
from warmwatch_monitor.model import Snapshot


def families(snapshot: Snapshot, version: str | None = None) -> Iterator[Family]:
    """Every family, those without a sample too.

    ``version`` is Warmwatch's own, for ``warmwatch_build_info``; without it there is none.
    """
    yield from rank.families(snapshot)
    yield from ends.families(snapshot)
    yield from gpu.families(snapshot.gpus)
    yield from host.families(snapshot.host)
    yield from health.families(snapshot, version)


def render(
    snapshot: Snapshot, accept: str | None, *, version: str | None = None
) -> tuple[bytes, str]:
    """The body of ``/metrics`` and its content type, as the ``Accept`` header asks for it."""
    return encode(families(snapshot, version), accept)
