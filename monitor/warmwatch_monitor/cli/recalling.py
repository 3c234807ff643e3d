"""Wires what is remembered of the runs that are seen: an entry in the list of sources.

Nothing of the history is loaded before there is a run to ask it about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warmwatch_monitor.config import Keeping
from warmwatch_monitor.model import RecordReading, Remembered
from warmwatch_monitor.sources.listed import NVML, RECORDS
from warmwatch_monitor.sources.readings import PRECEDENTS, Readings, Source

if TYPE_CHECKING:
    from warmwatch_monitor.remembered.recalling import Recalling

_PATIENCE_SECONDS = 2.0
_PATIENCE_OF_A_COMMAND = 0.5  # somebody waits for it
_LOOK_SECONDS = 1.0


def recalling(keeping: Keeping, *, late: bool = False) -> tuple[Source[Any], ...]:
    """The entry; none where nothing is kept.

    ``late``: for a daemon, which asks about runs that are warm too. A command asks about those that
    compile at the time.
    """
    if keeping.directory is None:
        return ()
    patience = _PATIENCE_SECONDS if late else _PATIENCE_OF_A_COMMAND
    made: list[Recalling] = []

    def is_due(one: RecordReading) -> bool:
        counts = one.slot.compile
        return one.alive and (counts.active_since_ns > 0 or (late and counts.warmups > 0))

    def read(others: Readings) -> Mapping[str, Remembered]:
        found = others.of(RECORDS)
        records = found.records if found else ()
        if not made and not any(map(is_due, records)):
            return {}
        if not made:
            from warmwatch_monitor.remembered.recalling import Recalling
            from warmwatch_monitor.remembered.store import Store

            made.append(Recalling(Store(keeping, patience=patience), is_due))
        return made[0].read(records, others.of(NVML) or ())

    return (
        Source(
            name=PRECEDENTS,
            interval=lambda _: _LOOK_SECONDS,
            make=lambda _settings, _clock: read,
            once_seconds=2 * patience,
        ),
    )
