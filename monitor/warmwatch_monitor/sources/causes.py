"""Why a record's journal says that things were compiled: read whole, when somebody asks that.

A line is believed as far as an agent would have written it, as everywhere.
"""

from __future__ import annotations

import os

from warmwatch import record
from warmwatch_monitor.model import Compilation, CudagraphSkip, Fallback, GraphBreak
from warmwatch_monitor.model.told import Told
from warmwatch_monitor.sources import entries, journal
from warmwatch_monitor.sources.folder import Folder

_MOST = 20_000


def causes_in(folder: str) -> Told:
    """All of one record. Raises OSError, RecordError."""
    with Folder(folder) as opened:
        descriptor, status = opened.open(record.JOURNAL)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(min(status.st_size, journal.LARGEST))
    lines = _Lines()
    for line in data.splitlines()[:_MOST]:
        lines.take(line)
    return lines.causes()


class _Lines:
    def __init__(self) -> None:
        self._warm = False
        self._compilations: list[Compilation] = []
        self._late: list[Compilation] = []
        self._breaks: dict[str, GraphBreak] = {}  # a later line of a reason counts all of it
        self._fallbacks: list[Fallback] = []
        self._skips: list[CudagraphSkip] = []

    def take(self, line: bytes) -> None:
        """One line; a foreign one is passed over."""
        try:
            entry = entries.parse(line)
            self._sort(entries.text(entry, "event", entries.LONGEST_NAME), entry)
        except ValueError:
            return

    def _sort(self, event: str | None, entry: entries.Entry) -> None:
        if event == "compilation":
            made = entries.compilation(entry)
            self._compilations.append(made)
            if self._warm and made.category is not None:
                self._late.append(made)
        elif event == "warm":
            self._warm = True
        elif event == "graph_break":
            told = entries.graph_break(entry)
            self._breaks[told.reason] = told
        elif event == "fallback":
            self._fallbacks.append(entries.fallback(entry))
        elif event == "cudagraph_skip":
            self._skips.append(entries.cudagraph_skip(entry))

    def causes(self) -> Told:
        return Told(
            compilations=tuple(self._compilations),
            late=tuple(self._late),
            breaks=tuple(self._breaks.values()),
            fallbacks=tuple(self._fallbacks),
            skips=tuple(self._skips),
        )
