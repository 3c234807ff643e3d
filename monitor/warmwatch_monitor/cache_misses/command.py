"""``warmwatch status --misses``: why compile caches missed, from the records on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from warmwatch.shared.record import RecordError
from warmwatch_monitor.cache_misses.cache_keys import Lookup, lookups_in
from warmwatch_monitor.cache_misses.diff import misses
from warmwatch_monitor.cache_misses.wording import sentence
from warmwatch_monitor.client.choice import Answer, choose_runs
from warmwatch_monitor.errors import NoRunError, UnknownRunError
from warmwatch_monitor.model import RecordReading
from warmwatch_monitor.settings import EVER_SECONDS, Settings
from warmwatch_monitor.sources.records.source import RecordsSource
from warmwatch_monitor.status.words.sentence import NO_RUN


def lines(settings: Settings, run: str | None) -> list[str]:
    """A line for each miss and bypass of the latest start of RUN, or of each run.

    Raises:
        UnknownRunError: no record belongs to such a run. NoRunError: there is no record at all.
    """
    readings = RecordsSource(settings.directories, retention=EVER_SECONDS).read().records
    if not readings:
        raise NoRunError(NO_RUN) if run is None else UnknownRunError(run, ())
    found = [sentence(miss) for miss in misses(_chosen(readings, run), _read)]
    return found or ["no compile cache has missed or was passed by, as far as the records tell"]


def _chosen(readings: Sequence[RecordReading], run: str | None) -> list[RecordReading]:
    """The readings of the runs that ``run`` selects, by the rules of all commands."""
    named = {one.slot.identity.run: _as_run(one) for one in readings}
    runs = choose_runs([named[name] for name in sorted(named)], run, os.geteuid())
    names = {one["run"] for one in runs}
    return [one for one in readings if one.slot.identity.run in names]


def _as_run(reading: RecordReading) -> Answer:
    """A record's owner and run, as in ``/status``, without its state."""
    shown, owner = reading.slot.identity.run, reading.owner
    return {
        "run": shown,
        "name": owner.plain(shown) if owner else shown,
        "owner": owner.name if owner else None,
        "owner_uid": owner.uid if owner else None,
    }


def _read(folder: str) -> list[Lookup]:
    try:
        return lookups_in(folder)
    except (OSError, RecordError):
        return []  # the record is gone, or belongs to another user
