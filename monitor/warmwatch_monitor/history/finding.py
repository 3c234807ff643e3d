"""Finds a run in the history: by id, prefix of an id, name, pattern, or ``NAME~1``."""

from __future__ import annotations

from difflib import get_close_matches

from warmwatch_monitor.base.errors import NotInHistoryError, NotOneRunError
from warmwatch_monitor.history.listing import Listed, RunQuery
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.run_summary import RunSummary

_SHORTEST_PREFIX = 2  # letters of an id
_SHOWN = 3


def find(store: Store, run: str) -> RunSummary:
    """The run for ``run``, the first of these that matches:

    an id; the latest run of a name, or of a pattern; ``NAME~1`` for the one before it, ``NAME~2``
    for the one before that; the prefix of exactly one id.

    Raises:
        NotInHistoryError: no run matches; the message names similar ones. NotOneRunError: fewer
            runs have the name, or several ids have the prefix.
        StoreError: the history cannot be read.
    """
    summary = store.load(_id(store, run))
    if summary is None:  # evicted meanwhile
        raise NotInHistoryError(f"run {run!r} is not in the history any more")
    return summary


def _id(store: Store, run: str) -> str:
    exact = store.listed(RunQuery(id=run, limit=2))
    for listed in (
        next((entry for entry in exact if entry.id == run), None),
        _named(store, run, 0),
        *([_before(store, run)] if "~" in run else []),
    ):
        if listed is not None:
            return listed.id
    long_enough = len(run) >= _SHORTEST_PREFIX
    matches = store.listed(RunQuery(id=run.lower(), limit=_SHOWN)) if long_enough else []
    if len(matches) == 1:
        return matches[0].id
    if matches:
        ids = ", ".join(f"{match.id} ({match.run})" for match in matches)
        raise NotOneRunError(f"{run!r} is the prefix of several ids: {ids}; give a longer one")
    raise NotInHistoryError(_nearest(store, run))


def _named(store: Store, name: str, skip: int) -> Listed | None:
    """The latest run of a name. Prefers the user's own runs, and a name to a pattern."""
    for query in (
        RunQuery(shown=name, limit=1, skip=skip),
        RunQuery(called=name, limit=1, skip=skip),
        RunQuery(name=name, limit=1, skip=skip),
    ):
        if listeds := store.listed(query):
            return listeds[0]
    return None


def _before(store: Store, run: str) -> Listed | None:
    """The run for ``NAME~1``. Raises NotOneRunError if there are fewer runs of that name."""
    name, _, back = run.rpartition("~")
    if not name or not back.isdecimal() or len(back) > 9:
        return None
    listed = _named(store, name, int(back))
    if listed is None and _named(store, name, 0) is not None:
        raise NotOneRunError(
            f"the history has fewer runs named {name!r}; warmwatch runs --name '{name}' lists them"
        )
    return listed


def _nearest(store: Store, run: str) -> str:
    names = list(dict.fromkeys(listed.run for listed in store.listed()))
    if not names:
        return f"the history in {store.path} has no runs; `warmwatch runs` explains how to write it"
    near = get_close_matches(run, names, n=_SHOWN)
    hint = f"did you mean {' or '.join(near)}?" if near else "`warmwatch runs` lists them"
    return f"no run {run!r} in the history; {hint}"
