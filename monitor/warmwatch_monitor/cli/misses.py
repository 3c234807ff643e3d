"""``warmwatch status --misses``: why the compile caches missed, from the records here."""

from __future__ import annotations

from fnmatch import fnmatchcase

from warmwatch.record import RecordError
from warmwatch_monitor.config import Settings
from warmwatch_monitor.errors import NoRunError, UnknownRunError, WarmwatchError
from warmwatch_monitor.export.words.keys import sentence
from warmwatch_monitor.export.words.sentence import NO_RUN
from warmwatch_monitor.misses import misses
from warmwatch_monitor.model.keys import Asked
from warmwatch_monitor.sources.keys import asked_in
from warmwatch_monitor.sources.records import RecordsSource

_EVER = 10.0 * 365 * 86400  # seconds: the run before may have ended long ago


def lines(settings: Settings, run: str | None) -> list[str]:
    """A line for each miss and bypass of the latest start of RUN, or of each run.

    Raises:
        UnknownRunError: no record is of such a run. NoRunError: there is none at all.
    """
    readings = RecordsSource(settings.directories, retention=_EVER).read().records
    chosen = [one for one in readings if run is None or _is_named(one.slot.identity.run, run)]
    if not chosen:
        raise _unknown(run, {one.slot.identity.run for one in readings})
    found = [sentence(miss) for miss in misses(chosen, _read)]
    return found or ["no compile cache has missed or was passed by, as far as the records tell"]


def _unknown(run: str | None, known: set[str]) -> WarmwatchError:
    return NoRunError(NO_RUN) if run is None else UnknownRunError(run, tuple(sorted(known)))


def _read(folder: str) -> list[Asked]:
    try:
        return asked_in(folder)
    except (OSError, RecordError):
        return []  # a record that has gone, or another user's


def _is_named(name: str, run: str) -> bool:
    return name == run or fnmatchcase(name, run)
