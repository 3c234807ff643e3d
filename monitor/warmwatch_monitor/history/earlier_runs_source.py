"""The data source of earlier runs.

A file of its own, so that SQLite is loaded only once a run needs the history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from warmwatch_monitor.base.settings import HistorySettings
from warmwatch_monitor.model.budgets import HISTORY_SECONDS
from warmwatch_monitor.sources.listed import EARLIER_RUNS, NVML, RECORDS, Readings, Source

if TYPE_CHECKING:
    from warmwatch_monitor.history.earlier_runs import EarlierRuns
    from warmwatch_monitor.model.figures import RankHistory
    from warmwatch_monitor.model.records import RecordReading

_TIMEOUT_SECONDS = 2.0
_COMMAND_TIMEOUT_SECONDS = 0.5  # a user waits for the command
_INTERVAL_SECONDS = 1.0


def _opened(
    settings: HistorySettings,
    patience: float,
    is_due: Callable[[RecordReading], bool],
    within: float,
) -> EarlierRuns:
    from warmwatch_monitor.history import earlier_runs, store  # SQLite

    opened = store.Store(settings, patience=patience)
    return earlier_runs.EarlierRuns(opened, is_due, within)


def earlier_runs_source(
    settings: HistorySettings, *, late: bool = False
) -> tuple[Source[Any], ...]:
    """The source; empty if the history is off.

    It is queried for runs that compile, and for what a daemon saw and the record does not tell:
    signals, and builds that a step waited for. ``late``: for all runs, as a daemon does.
    """
    if settings.directory is None:
        return ()
    patience = _TIMEOUT_SECONDS if late else _COMMAND_TIMEOUT_SECONDS
    made: list[EarlierRuns] = []

    def is_due(item: RecordReading) -> bool:
        counts = item.slot.compile
        return item.alive and (counts.active_since_ns > 0 or (late and counts.warmups > 0))

    def read(others: Readings) -> Mapping[str, RankHistory]:
        reading = others.of(RECORDS)
        records = reading.records if reading else ()
        if not (made or late or any(is_due(one) or one.may_have_history for one in records)):
            return {}
        if not made:
            within = HISTORY_SECONDS if late else float("inf")  # a command reads once
            made.append(_opened(settings, patience, is_due, within))
        return made[0].read(records, others.of(NVML) or ())

    return (
        Source(
            name=EARLIER_RUNS,
            interval=lambda _: _INTERVAL_SECONDS,
            make=lambda _settings, _clock: read,
            once_seconds=2 * patience,
        ),
    )
