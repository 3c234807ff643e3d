"""Finds a run in the history: by id, start of an id, name, or NAME~1."""

from __future__ import annotations

from difflib import get_close_matches

from warmwatch_monitor.errors import NotInHistoryError
from warmwatch_monitor.history.listing import Listed, Wanted
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.run_summary import RunSummary

_FEWEST = 2  # letters of an id that mean it
_SHOWN = 3


def find(store: Store, run: str) -> RunSummary:
    """The run that ``run`` means: an id; the latest of this name, or of those that match a pattern;
    ``NAME~1`` the one before, ``NAME~2`` that before it; the begin of one id alone.

    Raises:
        NotRememberedError: there is none, and says what is near. StoreError: it cannot be read.
    """
    found = store.load(_id(store, run))
    if found is None:  # it has been let go of since
        raise NotInHistoryError(f"run {run!r} is not remembered any more")
    return found


def _id(store: Store, run: str) -> str:
    for known in (
        _exact(store, run),
        _named(store, run, 0),
        *([_before(store, run)] if "~" in run else []),
    ):
        if known is not None:
            return known.id
    begun = store.listed(Wanted(id=run.lower(), limit=_SHOWN)) if len(run) >= _FEWEST else []
    if len(begun) == 1:
        return begun[0].id
    if begun:
        which = ", ".join(f"{one.id} ({one.run})" for one in begun)
        raise NotInHistoryError(f"{run!r} is the begin of several ids: {which}; give more of one")
    raise NotInHistoryError(_nearest(store, run))


def _exact(store: Store, run: str) -> Listed | None:
    return next((one for one in store.listed(Wanted(id=run, limit=2)) if one.id == run), None)


def _named(store: Store, name: str, skip: int) -> Listed | None:
    """The user's own before another's of that name, and a name before a pattern."""
    for wanted in (
        Wanted(shown=name, limit=1, skip=skip),
        Wanted(called=name, limit=1, skip=skip),
        Wanted(name=name, limit=1, skip=skip),
    ):
        if found := store.listed(wanted):
            return found[0]
    return None


def _before(store: Store, run: str) -> Listed | None:
    """``NAME~1``. Raises NotRememberedError where the name is there, and not so often."""
    name, _, back = run.rpartition("~")
    if not name or not back.isdecimal() or len(back) > 9:
        return None
    found = _named(store, name, int(back))
    if found is None and _named(store, name, 0) is not None:
        raise NotInHistoryError(
            f"run {name!r} is not remembered so often; warmwatch runs --name '{name}' shows each"
        )
    return found


def _nearest(store: Store, run: str) -> str:
    names = list(dict.fromkeys(one.run for one in store.listed()))
    if not names:
        return f"no run is remembered in {store.path}; `warmwatch runs` says how one is"
    near = get_close_matches(run, names, n=_SHOWN)
    hint = f"did you mean {' or '.join(near)}?" if near else "`warmwatch runs` lists them"
    return f"no run {run!r} is remembered; {hint}"
