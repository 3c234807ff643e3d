"""All that a record's journal tells of what was compiled: read whole, when a run is remembered.

Never at each look. In a shared directory anybody can write a journal, so a line is believed only as
far as an agent would have written it, and both what is read and what is kept of it is bounded.
"""

from __future__ import annotations

import os

from msgspec import Struct

from warmwatch import record
from warmwatch.bounds import MOST_OPTIONS
from warmwatch.record import RecordError
from warmwatch_monitor.model import Compilation
from warmwatch_monitor.model.account import Wrapping
from warmwatch_monitor.sources import entries, journal
from warmwatch_monitor.sources.folder import Folder

MOST = 2_000
MOST_WRAPPINGS = 50
_LONGEST_HASH = 64
_MOST_LINES = 20_000  # of a journal of any size: half a second, once a minute
_COMPILATION = b'"compilation"'
_EVENTS = (_COMPILATION, b'"begin"', b'"wrapped"', b'"first_step"')
_Place = tuple[str | None, str | None, int | None]


class ToldCompilation(Struct, frozen=True, kw_only=True):
    """A compilation; ``step``: steps before it. ``code``: hash of the function's code."""

    compilation: Compilation
    step: int | None = None
    code: str | None = None


class Told(Struct, frozen=True, kw_only=True):
    """What one journal tells: compilations in order, ``left_out`` beyond MOST, calls by kind.

    ``first_step_bytes``: the most that was allocated up to the end of the first step.
    """

    compilations: tuple[ToldCompilation, ...] = ()
    left_out: int = 0
    wrappings: tuple[Wrapping, ...] = ()
    first_step_bytes: int | None = None


NOTHING = Told()


class Journals:
    """Whole journals, each read again only where it has grown."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Told]] = {}

    def of(self, folder: str) -> Told:
        """That of one record; as it was last read where it is gone, or is another user's now."""
        size, told = self._known.get(folder, (-1, NOTHING))
        try:
            with Folder(folder) as opened:
                now = opened.size(record.JOURNAL)
                if now != size:
                    told = _parsed(_content(opened))
                    self._known[folder] = now, told
        except (OSError, RecordError):
            pass  # a record that has gone has told all that it had to tell
        return told

    def forget_others(self, folders: set[str]) -> None:
        """Keep nothing of other records."""
        for folder in self._known.keys() - folders:
            del self._known[folder]


def told_in(folder: str) -> Told:
    """What the journal of one record tells; nothing where it cannot be read."""
    return Journals().of(folder)


def _content(folder: Folder) -> bytes:
    descriptor, status = folder.open(record.JOURNAL)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(min(status.st_size, journal.LARGEST))


def _parsed(data: bytes) -> Told:
    reader = _Reader()
    lines = [line for line in data.splitlines() if any(event in line for event in _EVENTS)]
    for line in lines[:_MOST_LINES]:
        try:
            reader.take(entries.parse(line))
        except ValueError:
            continue  # one that no agent writes
    return Told(
        compilations=tuple(reader.compilations),
        left_out=reader.left_out + sum(_COMPILATION in line for line in lines[_MOST_LINES:]),
        wrappings=tuple(reader.wrappings()),
        first_step_bytes=reader.first_step_bytes,
    )


class _Reader:
    """One journal, line by line."""

    def __init__(self) -> None:
        self.compilations: list[ToldCompilation] = []
        self.left_out = 0
        self.first_step_bytes: int | None = None
        self._step: int | None = None
        self._code: tuple[_Place, str] | None = None  # of the last begin that told of one
        self._wrapped: dict[Wrapping, int] = {}

    def take(self, entry: entries.Entry) -> None:
        """Raises ValueError where the entry is none of an agent's."""
        event = entry.get("event")
        if event == "begin":
            self._begin(entry)
        elif event == "compilation":
            self._compilation(entry)
        elif event == "first_step":
            self.first_step_bytes = entries.first_step_bytes(entry)
        elif event == "wrapped":
            how = _wrapping(entry)
            if how in self._wrapped or len(self._wrapped) < MOST_WRAPPINGS:
                self._wrapped[how] = self._wrapped.get(how, 0) + 1

    def wrappings(self) -> list[Wrapping]:
        """Each way in which ``torch.compile`` was called, in order."""
        return [
            Wrapping(
                mode=how.mode,
                backend=how.backend,
                dynamic=how.dynamic,
                fullgraph=how.fullgraph,
                options=how.options,
                count=count,
            )
            for how, count in self._wrapped.items()
        ]

    def _begin(self, entry: entries.Entry) -> None:
        told = entries.beginning(entry)
        _, self._step = entries.steps_by(entry, "steps")
        if (code := entries.text(entry, "code", _LONGEST_HASH)) is not None:
            self._code = (told.name, told.file, told.line), code

    def _compilation(self, entry: entries.Entry) -> None:
        made = entries.compilation(entry)
        if len(self.compilations) >= MOST:
            self.left_out += 1
            return
        code = entries.text(entry, "code", _LONGEST_HASH)
        if code is None and self._code is not None and made.name is not None:
            place = made.name, made.file, made.line
            code = self._code[1] if self._code[0] == place else None
        told = ToldCompilation(compilation=made, step=self._step, code=code)
        self.compilations.append(told)


def _wrapping(entry: entries.Entry) -> Wrapping:
    """How ``torch.compile`` was called once. Raises ValueError."""
    dynamic, fullgraph = entry.get("dynamic"), entry.get("fullgraph", False)
    if not isinstance(dynamic, bool | None) or not isinstance(fullgraph, bool | None):
        raise ValueError("neither yes nor no")
    return Wrapping(
        mode=entries.text(entry, "mode", entries.LONGEST_NAME) or "default",
        backend=entries.text(entry, "backend", entries.LONGEST_NAME) or "inductor",
        dynamic=dynamic,
        fullgraph=bool(fullgraph),
        options=tuple(_options(entry.get("options"))),
    )


def _options(told: object) -> list[str]:
    """Names of options with hashes, told as a table or as a list. Raises ValueError."""
    if told is None:
        return []
    if isinstance(told, dict):
        told = [f"{name}={short}" for name, short in told.items()]
    if not isinstance(told, list):
        raise ValueError("options are no list")
    few = told[:MOST_OPTIONS]
    texts = (entries.text({"option": one}, "option", entries.LONGEST_NAME) for one in few)
    return [one for one in texts if one]
