"""The Accounts of runs that a command was asked about, of whatever is known of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from warmwatch_monitor.cli.answers import make_poller, settings_from
from warmwatch_monitor.cli.choice import choose_runs
from warmwatch_monitor.errors import NoRunError

if TYPE_CHECKING:
    from warmwatch_monitor.model import Snapshot
    from warmwatch_monitor.model.account import Account

_EVER = 10.0 * 365 * 86400  # seconds: the run may have ended long ago


def accounts(names: Sequence[str] = (), *, dir: str | None = None) -> tuple[Account, ...]:
    """One for each of ``names``, in their order; of none, that of the run that began last.

    ``dir``: where the records lie. A pattern may stand for several runs.

    Raises:
        UnknownRunError: a name is of no run. NoRunError: there is none at all.
        UsageError: ``dir`` cannot be used.
    """
    settings = settings_from(dir=dir, observe="off")
    snapshot = make_poller(settings._replace(retention=_EVER)).poll_once()
    if not snapshot.runs and not names:
        raise NoRunError("no run is known here: there are no records")
    known = accounts_in(snapshot)
    if not names:
        return (max(known, key=lambda one: one.began),)
    return tuple(one for name in names for one in _named(known, snapshot, name))


def accounts_in(snapshot: Snapshot) -> tuple[Account, ...]:
    """Of every run of ``snapshot``."""
    from warmwatch_monitor.remembered.making import account_of

    return tuple(account_of(run, snapshot) for run in snapshot.runs)


def _named(known: Sequence[Account], snapshot: Snapshot, name: str) -> list[Account]:
    by_id = [one for one in known if one.id == name]
    if by_id:
        return by_id
    shown = [
        {
            "run": view.run,
            "name": view.who.name or view.run,
            "owner": view.who.owner,
            "owner_uid": view.who.owner_uid,
        }
        for view in snapshot.runs
    ]
    chosen = {one["run"] for one in choose_runs(shown, name, os.geteuid())}
    return [one for one in known if one.run in chosen]
