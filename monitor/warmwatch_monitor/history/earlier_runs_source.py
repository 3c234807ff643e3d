"""The entry of earlier runs in the list of data sources.

Nothing of the history is loaded before there is a run to ask it about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warmwatch_monitor.model import RecordReading, Remembered
from warmwatch_monitor.settings import CleanupLock
from warmwatch_monitor.sources.listed import NVML, PRECEDENTS, RECORDS, Readings, Source

if TYPE_CHECKING:
    from warmwatch_monitor.history.earlier_runs import EarlierRuns

_PATIENCE_SECONDS = 2.0
_PATIENCE_OF_A_COMMAND = 0.5  # somebody waits for it
_LOOK_SECONDS = 1.0


def recalling(keeping: CleanupLock, *, late: bool = False) -> tuple[Source[Any], ...]:
    """The entry; none where nothing is kept.

    ``late``: for a daemon, which asks about runs that are warm too. A command asks about those that
    compile at the time.
    """
    if keeping.directory is None:
        return ()
    patience = _PATIENCE_SECONDS if late else _PATIENCE_OF_A_COMMAND
    made: list[EarlierRuns] = []

    def is_due(one: RecordReading) -> bool:
        counts = one.slot.compile
        return one.alive and (counts.active_since_ns > 0 or (late and counts.warmups > 0))

    def read(others: Readings) -> Mapping[str, Remembered]:
        found = others.of(RECORDS)
        records = found.records if found else ()
        if not made and not any(map(is_due, records)):
            return {}
        if not made:
            from warmwatch_monitor.history.earlier_runs import EarlierRuns
            from warmwatch_monitor.history.store import Store

            made.append(EarlierRuns(Store(keeping, patience=patience), is_due))
        return made[0].read(records, others.of(NVML) or ())

    return (
        Source(
            name=PRECEDENTS,
            interval=lambda _: _LOOK_SECONDS,
            make=lambda _settings, _clock: read,
            once_seconds=2 * patience,
        ),
    )
