"""What a command without a daemon remembers: runs that have ended, where nobody else has yet."""

from __future__ import annotations

from collections.abc import Iterable

from warmwatch_monitor.config import Keeping
from warmwatch_monitor.model import RunView, Snapshot
from warmwatch_monitor.remembered.making import account_of, id_of
from warmwatch_monitor.remembered.store import Store

_PATIENCE_SECONDS = 0.5  # somebody waits for the command


def remember(ended: Iterable[tuple[RunView, Snapshot]], keeping: Keeping) -> None:
    """Write those of ``ended`` whose end is not known yet. Raises StoreError."""
    store = Store(keeping, patience=_PATIENCE_SECONDS)
    by_id = {id_of(run): (run, snapshot) for run, snapshot in ended}
    known = store.ended(by_id)
    new = [account_of(*seen) for id, seen in by_id.items() if id not in known]
    if new:
        store.save(new)
