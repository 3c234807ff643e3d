"""Writes ended runs to the history, for commands that read the records themselves.

A file of its own, so that a command loads SQLite only if a run has ended. If the history cannot be
written, the command prints one line and continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from warmwatch_monitor.base.errors import StoreError
from warmwatch_monitor.base.settings import HistorySettings
from warmwatch_monitor.output.console import note

if TYPE_CHECKING:
    from warmwatch_monitor.model.snapshot import RunView, Snapshot


class HistoryWriter:
    """Collects the ended runs that a command saw, and writes them."""

    def __init__(self, settings: HistorySettings) -> None:
        self._settings = settings
        self._ended: dict[tuple[str, float | None], tuple[RunView, Snapshot]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Collect the runs that have ended. No others: a command may run for weeks."""
        for run in snapshot.starts:
            if not run.living:
                self._ended[run.run, run.attached_at] = run, replace(snapshot, runs=(run,))

    def write(self) -> None:
        """Write the collected runs that are not in the history."""
        if not self._ended or self._settings.directory is None:
            return
        from warmwatch_monitor.history.keeper import write_ended  # SQLite

        try:
            write_ended(self._ended.values(), self._settings)
        except StoreError as error:
            note(f"warmwatch: not written to the history: {error}")
