"""Other runs that ran on the same host at the same time as a compared one, from the history.

Their load is within its times. Other programs are not recorded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from warmwatch_monitor.compare.comparison import Neighbour
from warmwatch_monitor.errors import StoreError
from warmwatch_monitor.history.listing import Listed, Wanted
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.settings import load_history_settings

_LISTED = 1_000  # runs at the same time: more than that many are not looked at
_LEAST = 0.05  # of its time: a shorter one changes no median


def neighbours(compared: Sequence[RunSummary]) -> Mapping[str, tuple[Neighbour, ...]]:
    """By the id of each compared run, the longest at the same time first; empty without a history.

    A history that cannot be read is reported by ``repeats``, which reads it too.
    """
    settings = load_history_settings(os.environ)
    if settings.directory is None:
        return {}
    try:
        store = Store(settings)
        return {one.id: _of(one, store) for one in compared}
    except StoreError:
        return {}


def _of(one: RunSummary, store: Store) -> tuple[Neighbour, ...]:
    if one.host is None:
        return ()
    wanted = Wanted(since=one.began, until=_end(one), limit=_LISTED)
    others = (
        Neighbour(run=each.run, id=each.id, share=share)
        for each in store.readable(wanted)
        if each.id != one.id and each.host == one.host and (share := _share(one, each)) >= _LEAST
    )
    return tuple(sorted(others, key=lambda each: -each.share))


def _share(one: RunSummary, other: Listed) -> float:
    """The share of the time of ``one`` in which ``other`` ran too."""
    common = min(_end(one), _end(other)) - max(one.began, other.began)
    return max(0.0, common) / max(1e-9, _end(one) - one.began)


def _end(of: RunSummary | Listed) -> float:
    return of.ended if of.ended is not None else of.seen
