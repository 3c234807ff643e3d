"""Complete journals, parsed on demand: all compilations of a run, and their causes.

A line is typed, finite and bounded, or refused. In a shared directory anybody can write a journal,
so a line is accepted only if an agent could have written it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch.shared.record import RecordError
from warmwatch.shared.values import MOST_OPTIONS, printable
from warmwatch_monitor.model.budgets import JOURNALS_CACHED
from warmwatch_monitor.model.journal import (
    MOST_KERNELS,
    MOST_METHODS,
    MOST_PLACES,
    NOTHING,
    Compilation,
    CompileCall,
    CudagraphSkip,
    Fallback,
    FirstStep,
    GraphBreak,
    Line,
    ParsedJournal,
    Target,
    Warm,
)
from warmwatch_monitor.sources.records.folder import Folder

LARGEST_JOURNAL = 2 * record.JOURNAL_LIMIT  # to read completely; an agent stops at half
LONGEST_LINE = 64 * 1024
LONGEST_TEXT = 4_000
LONGEST_NAME = 300
# PyTorch's words, and packed hashes; all other texts are names
_TEXTS = {"reason", "failure_reason", "failure_hint", "cudagraph_skip", "hint", "message"}
_UNBOUNDED = "packed"  # by the line alone
_MOST = {
    "slowest": MOST_KERNELS,
    "methods": MOST_METHODS,
    "options": MOST_OPTIONS,
    "also": MOST_PLACES,
}
# A newer agent's name that is unknown here is read as "other".
_KNOWN = {"kind": frozenset(record.KINDS), "category": frozenset(record.REASONS)}


_Of = TypeVar("_Of", bound=Struct)


class _Head(Struct):
    event: str


_head = msgspec.json.Decoder(_Head)
_decoders = {
    str(line.__struct_config__.tag): msgspec.json.Decoder(line)
    for line in (*get_args(Line), Target)
}


def parse(line: bytes) -> Line | None:
    """The line's struct; ``None`` for an event that monitors do not read.

    Raises:
        ValueError: no agent writes such a line.
    """
    if len(line) > LONGEST_LINE:
        raise ValueError("longer than any agent's line")
    try:
        decoder = _decoders.get(_head.decode(line).event)
        return None if decoder is None else _bounded(decoder.decode(line))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None


def _bounded(line: _Of) -> _Of:
    """The line with its texts printable, its lists and texts cut, and its closed names known."""
    changed: dict[str, Any] = {}
    for name in line.__struct_fields__:
        value = getattr(line, name)
        if isinstance(value, str) and name != _UNBOUNDED:
            text = _text(value, LONGEST_TEXT if name in _TEXTS else LONGEST_NAME)
            if name in _KNOWN and text not in _KNOWN[name]:
                text = "other"
            if text != value:
                changed[name] = text
        elif isinstance(value, tuple) and value and not isinstance(value[0], int):
            changed[name] = tuple(_item(item) for item in value[: _MOST[name]])
        elif isinstance(value, Struct):
            changed[name] = _bounded(value)
        elif isinstance(value, dict):
            changed[name] = {phase: value[phase] for phase in record.PHASES if phase in value}
    return replace(line, **changed) if changed else line


def _item(item: Any) -> Any:
    """An option or a method, a place, or a kernel with its time."""
    if isinstance(item, Struct):
        return _bounded(item)
    return _text(item, LONGEST_NAME) if isinstance(item, str) else (_item(item[0]), item[1])


def _text(value: str, longest: int) -> str:
    value = value if len(value) <= longest else f"{value[:longest]}..."
    return printable(value, keep="\n")  # a reason has a line for each compiled entry


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
