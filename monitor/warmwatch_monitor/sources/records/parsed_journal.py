"""Complete journals, parsed on demand: all compilations of a run, and their causes."""

from __future__ import annotations

import os

from msgspec import Struct

from warmwatch.shared import record
from warmwatch.shared.record import RecordError
from warmwatch.shared.values import MOST_OPTIONS
from warmwatch_monitor.model import Compilation, CudagraphSkip, Fallback, GraphBreak
from warmwatch_monitor.model.budgets import JOURNALS_CACHED
from warmwatch_monitor.model.records import CompileCauses
from warmwatch_monitor.model.run_summary import Wrapping
from warmwatch_monitor.sources.records import journal_lines
from warmwatch_monitor.sources.records.folder import Folder

_MOST = 20_000


def causes_in(folder: str) -> CompileCauses:
    """All causes of one record. Raises OSError, RecordError."""
    with Folder(folder) as opened:
        descriptor, status = opened.open(record.JOURNAL)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(min(status.st_size, journal_lines.LARGEST_JOURNAL))
    lines = _Lines()
    for line in data.splitlines()[:_MOST]:
        lines.take(line)
    return lines.causes()


class _Lines:
    def __init__(self) -> None:
        self._warm = False
        self._compilations: list[Compilation] = []
        self._late: list[Compilation] = []
        self._breaks: dict[str, GraphBreak] = {}  # a later line of a reason has the total count
        self._fallbacks: list[Fallback] = []
        self._skips: list[CudagraphSkip] = []

    def take(self, line: bytes) -> None:
        """Add one line; skip a foreign one."""
        try:
            entry = journal_lines.parse(line)
            self._sort(journal_lines.text(entry, "event", journal_lines.LONGEST_NAME), entry)
        except ValueError:
            return

    def _sort(self, event: str | None, entry: journal_lines.Entry) -> None:
        if event == "compilation":
            made = journal_lines.compilation(entry)
            self._compilations.append(made)
            if self._warm and made.category is not None:
                self._late.append(made)
        elif event == "warm":
            self._warm = True
        elif event == "graph_break":
            parsed = journal_lines.graph_break(entry)
            self._breaks[parsed.reason] = parsed
        elif event == "fallback":
            self._fallbacks.append(journal_lines.fallback(entry))
        elif event == "cudagraph_skip":
            self._skips.append(journal_lines.cudagraph_skip(entry))

    def causes(self) -> CompileCauses:
        return CompileCauses(
            compilations=tuple(self._compilations),
            late=tuple(self._late),
            breaks=tuple(self._breaks.values()),
            fallbacks=tuple(self._fallbacks),
            skips=tuple(self._skips),
        )


MOST = 2_000
MOST_WRAPPINGS = 50
_LONGEST_HASH = 64
_MOST_LINES = 20_000  # of a journal of any size: takes half a second, once a minute
_COMPILATION = b'"compilation"'
_EVENTS = (_COMPILATION, b'"begin"', b'"wrapped"', b'"first_step"')
_Place = tuple[str | None, str | None, int | None]


class ParsedCompilation(Struct, frozen=True, kw_only=True):
    """A compilation; ``step``: steps before it. ``code``: hash of the function's code."""

    compilation: Compilation
    step: int | None = None
    code: str | None = None


class ParsedJournal(Struct, frozen=True, kw_only=True):
    """The content of one journal: compilations in order, ``left_out`` beyond MOST, calls by kind.

    ``first_step_bytes``: the peak of allocated memory up to the end of the first step.
    """

    compilations: tuple[ParsedCompilation, ...] = ()
    left_out: int = 0
    wrappings: tuple[Wrapping, ...] = ()
    first_step_bytes: int | None = None


NOTHING = ParsedJournal()


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
                    size, parsed = now, _parsed(_content(opened))
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


def _content(folder: Folder) -> bytes:
    descriptor, status = folder.open(record.JOURNAL)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(min(status.st_size, journal_lines.LARGEST_JOURNAL))


def _parsed(data: bytes) -> ParsedJournal:
    reader = _Reader()
    lines = [line for line in data.splitlines() if any(event in line for event in _EVENTS)]
    for line in lines[:_MOST_LINES]:
        try:
            reader.take(journal_lines.parse(line))
        except ValueError:
            continue  # no agent writes this
    return ParsedJournal(
        compilations=tuple(reader.compilations),
        left_out=reader.left_out + sum(_COMPILATION in line for line in lines[_MOST_LINES:]),
        wrappings=tuple(reader.wrappings()),
        first_step_bytes=reader.first_step_bytes,
    )


class _Reader:
    """One journal, line by line."""

    def __init__(self) -> None:
        self.compilations: list[ParsedCompilation] = []
        self.left_out = 0
        self.first_step_bytes: int | None = None
        self._step: int | None = None
        self._code: tuple[_Place, str] | None = None  # of the last begin that contained one
        self._wrapped: dict[Wrapping, int] = {}

    def take(self, entry: journal_lines.Entry) -> None:
        """Raises ValueError if no agent writes such an entry."""
        event = entry.get("event")
        if event == "begin":
            self._begin(entry)
        elif event == "compilation":
            self._compilation(entry)
        elif event == "first_step":
            self.first_step_bytes = journal_lines.first_step_bytes(entry)
        elif event == "wrapped":
            how = _wrapping(entry)
            if how in self._wrapped or len(self._wrapped) < MOST_WRAPPINGS:
                self._wrapped[how] = self._wrapped.get(how, 0) + 1

    def wrappings(self) -> list[Wrapping]:
        """The distinct calls of ``torch.compile``, in order."""
        return [
            Wrapping(
                mode=how.mode,
                backend=how.backend,
                dynamic=how.dynamic,
                fullgraph=how.fullgraph,
                options=how.options,
                library=how.library,
                count=count,
            )
            for how, count in self._wrapped.items()
        ]

    def _begin(self, entry: journal_lines.Entry) -> None:
        parsed = journal_lines.beginning(entry)
        _, self._step = journal_lines.steps_by(entry, "steps")
        if (code := journal_lines.text(entry, "code", _LONGEST_HASH)) is not None:
            self._code = (parsed.name, parsed.file, parsed.line), code

    def _compilation(self, entry: journal_lines.Entry) -> None:
        made = journal_lines.compilation(entry)
        if len(self.compilations) >= MOST:
            self.left_out += 1
            return
        code = journal_lines.text(entry, "code", _LONGEST_HASH)
        if code is None and self._code is not None and made.name is not None:
            place = made.name, made.file, made.line
            code = self._code[1] if self._code[0] == place else None
        parsed = ParsedCompilation(compilation=made, step=self._step, code=code)
        self.compilations.append(parsed)


def _wrapping(entry: journal_lines.Entry) -> Wrapping:
    """One call of ``torch.compile``. Raises ValueError."""
    dynamic, fullgraph = entry.get("dynamic"), entry.get("fullgraph", False)
    if not isinstance(dynamic, bool | None) or not isinstance(fullgraph, bool | None):
        raise ValueError("neither yes nor no")
    return Wrapping(
        mode=journal_lines.text(entry, "mode", journal_lines.LONGEST_NAME) or "default",
        backend=journal_lines.text(entry, "backend", journal_lines.LONGEST_NAME) or "inductor",
        dynamic=dynamic,
        fullgraph=bool(fullgraph),
        options=tuple(_options(entry.get("options"))),
        library=journal_lines.text(entry, "library", journal_lines.LONGEST_NAME),
    )


def _options(parsed: object) -> list[str]:
    """Names of options with hashes, from a table or a list. Raises ValueError."""
    if parsed is None:
        return []
    if isinstance(parsed, dict):
        parsed = [f"{name}={short}" for name, short in parsed.items()]
    if not isinstance(parsed, list):
        raise ValueError("options are no list")
    few = parsed[:MOST_OPTIONS]
    texts = (
        journal_lines.text({"option": one}, "option", journal_lines.LONGEST_NAME) for one in few
    )
    return [one for one in texts if one]
