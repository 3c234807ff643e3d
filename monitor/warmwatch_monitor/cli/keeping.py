"""Wires the daemon's keeper of the history: to the Snapshots, the last hour, and the sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warmwatch_monitor.config import Keeping
from warmwatch_monitor.sources.readings import Source
from warmwatch_monitor.views.history import SECONDS, History, columns

if TYPE_CHECKING:
    from warmwatch_monitor.remembered.keeper import Keeper

_PATIENCE_SECONDS = 2.0


def make_keeper(keeping: Keeping, history: History) -> Keeper | None:
    """A keeper in what ``keeping`` names, over the last hour; ``None`` where nothing is kept."""
    if keeping.directory is None:
        return None
    from warmwatch_monitor.remembered.keeper import Keeper
    from warmwatch_monitor.remembered.store import Store

    def past(seconds: int, run: str) -> Mapping[str, Any]:
        return columns(history, seconds, run, SECONDS)

    return Keeper(Store(keeping, patience=_PATIENCE_SECONDS), past)


def sources_of(keeper: Keeper | None) -> tuple[Source[Any], ...]:
    """Its entry in the list of sources: how it fares is a source's health."""
    if keeper is None:
        return ()
    from warmwatch_monitor.remembered.keeper import LOOK_SECONDS, SOURCE

    found = keeper
    return (
        Source(
            name=SOURCE,
            interval=lambda _: LOOK_SECONDS,
            make=lambda _settings, _clock: lambda _others: found.look(),
        ),
    )
