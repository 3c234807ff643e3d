"""Writes ended runs to the history, for commands that read the records themselves.

Nothing of the history is loaded where no run has ended. That it cannot be written is said in a
line, once, and changes nothing of the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmwatch_monitor.errors import StoreError
from warmwatch_monitor.output.console import note
from warmwatch_monitor.settings import CleanupLock

if TYPE_CHECKING:
    from warmwatch_monitor.model import RunView, Snapshot


class HistoryWriter:
    """Those that one command saw."""

    def __init__(self, keeping: CleanupLock) -> None:
        self._keeping = keeping
        self._ended: dict[tuple[str, float | None], tuple[RunView, Snapshot]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Know which runs have ended by now; a command may watch for weeks, so no others."""
        from msgspec.structs import replace

        for run in snapshot.runs:
            if not run.living:
                self._ended[run.run, run.attached_at] = run, replace(snapshot, runs=(run,))

    def write(self) -> None:
        """Write them, where they are not written yet."""
        if not self._ended or self._keeping.directory is None:
            return
        from warmwatch_monitor.history.keeper import remember

        try:
            remember(self._ended.values(), self._keeping)
        except StoreError as error:
            note(f"warmwatch: not remembered: {error}")
