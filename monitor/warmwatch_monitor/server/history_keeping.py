"""Wires the daemon's history keeper to Snapshots, the last hour, and the sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warmwatch_monitor.api.last_hour import SECONDS, History
from warmwatch_monitor.api.last_hour_columns import columns
from warmwatch_monitor.settings import HistorySettings
from warmwatch_monitor.sources.listed import Source

if TYPE_CHECKING:
    from warmwatch_monitor.history.keeper import Keeper

_PATIENCE_SECONDS = 2.0


def make_keeper(settings: HistorySettings, history: History) -> Keeper | None:
    """The keeper of the daemon's history; ``None`` if the history is off."""
    if settings.directory is None:
        return None
    from warmwatch_monitor.history.keeper import Keeper
    from warmwatch_monitor.history.store import Store

    def past(seconds: int, run: str) -> Mapping[str, Any]:
        return columns(history, seconds, run, SECONDS)

    return Keeper(Store(settings, patience=_PATIENCE_SECONDS), past)


def sources_of(keeper: Keeper | None) -> tuple[Source[Any], ...]:
    """Its entry in the list of sources: its failures show as a source's health."""
    if keeper is None:
        return ()
    from warmwatch_monitor.history.keeper import LOOK_SECONDS, SOURCE

    found = keeper
    return (
        Source(
            name=SOURCE,
            interval=lambda _: LOOK_SECONDS,
            make=lambda _settings, _clock: lambda _others: found.look(),
        ),
    )
