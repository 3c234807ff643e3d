"""Complete journals, parsed on demand: all compilations of a run, and their causes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch.shared.record import RecordError
from warmwatch_monitor.model.budgets import JOURNALS_CACHED
from warmwatch_monitor.model.journal import (
    NOTHING,
    Compilation,
    CompileCall,
    CudagraphSkip,
    Fallback,
    FirstStep,
    GraphBreak,
    Line,
    ParsedJournal,
    Warm,
)
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.journal_lines import LARGEST_JOURNAL, parse

MOST = 20_000  # lines of a journal of any size: takes a tenth of a second, once a minute
MOST_CALLS = 50
_COMPILATION = b'"compilation"'
_EVENTS = (
    *(_COMPILATION, b'"warm"', b'"wrapped"', b'"first_step"', b'"graph_break"'),
    *(b'"fallback"', b'"cudagraph_skip"'),
)


class Journals:
    """Complete journals. Those that were read last are read again only if they have grown."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, ParsedJournal]] = {}  # the last used one at the end

    def of(self, folder: str) -> ParsedJournal:
        """The journal of one record; the last reading if it is gone, or has another owner now."""
        size, parsed = self._known.pop(folder, (-1, NOTHING))
        try:
            with Folder(folder) as opened:
                now = opened.size(record.JOURNAL)
                if now != size:
                    size, parsed = now, _parsed(content(opened))
        except (OSError, RecordError):
            pass  # the last reading of a record that is gone is complete
        if size >= 0:
            self._known[folder] = size, parsed
        cached = sum(size for size, _ in self._known.values())
        while cached > JOURNALS_CACHED:
            cached -= self._known.pop(next(iter(self._known)))[0]
        return parsed

    def forget_others(self, folders: set[str]) -> None:
        """Forget other records."""
        for folder in self._known.keys() - folders:
            del self._known[folder]


def parse_journal(folder: str) -> ParsedJournal:
    """The content of one record's journal; empty if it cannot be read."""
    return Journals().of(folder)


def content(folder: Folder) -> bytes:
    """The bytes of a record's journal. Raises OSError, RecordError."""
    descriptor, status = folder.open(record.JOURNAL)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(min(status.st_size, LARGEST_JOURNAL))


def _parsed(data: bytes) -> ParsedJournal:
    lines = [line for line in data.splitlines() if any(event in line for event in _EVENTS)]
    entries: list[Line] = []
    for line in lines[:MOST]:
        try:
            entry = parse(line)
        except ValueError:
            continue  # no agent writes this
        if entry is not None:
            entries.append(entry)
    breaks = {
        graph_break.reason: graph_break
        for graph_break in entries
        if isinstance(graph_break, GraphBreak)
    }
    calls = dict.fromkeys(call.wrapping for call in entries if isinstance(call, CompileCall))
    first = [step.peak_allocated for step in entries if isinstance(step, FirstStep)]
    return ParsedJournal(
        compilations=tuple(_compilations(entries)),
        left_out=sum(_COMPILATION in line for line in lines[MOST:]),
        breaks=tuple(breaks.values()),
        fallbacks=tuple(fallback for fallback in entries if isinstance(fallback, Fallback)),
        skips=tuple(skip for skip in entries if isinstance(skip, CudagraphSkip)),
        calls=tuple(calls)[:MOST_CALLS],
        first_step_bytes=first[-1] if first else None,
    )


def _compilations(entries: Sequence[Line]) -> list[Compilation]:
    warm, result = False, []
    for entry in entries:
        warm = warm or isinstance(entry, Warm)
        if isinstance(entry, Compilation):
            result.append(replace(entry, after_warm=True) if warm else entry)
    return result
