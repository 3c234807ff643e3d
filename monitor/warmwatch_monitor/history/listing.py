"""List entries of the history, for ``warmwatch runs``, and the query that selects them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from warmwatch.shared.values import printable
from warmwatch_monitor.history.rows import RowError, run_row
from warmwatch_monitor.model.run_summary import Epoch, RunSummary

if TYPE_CHECKING:
    import sqlite3  # which not every Python has


class Listed(Struct, frozen=True):
    """The list entry of a run. Figures of ranks are their maximum; null: unknown."""

    id: str
    """Its id in the history."""
    run: str
    """Its name, with the owner if that is another user: `gpt2@alice`."""
    name: str
    """Its name, as set by its user."""
    owner: str | None
    """The user who owns it; null if unknown."""
    host: str | None
    """The host that it ran on."""
    state: str
    """Its last state."""
    began: Epoch
    """When it began."""
    ended: Epoch | None
    """When it ended; null if that was not seen."""
    seen: Epoch
    """When it was last seen."""
    summary: str
    """Its last sentence."""
    world_size: int | None
    """Number of its ranks, as set by the launcher."""
    ranks: int
    """Number of ranks that were seen."""
    steps: int | None
    """Training steps."""
    first_step_seconds: float | None
    """Length of step 1."""
    step_seconds: float | None
    """Length of a clean step over the whole run, of the slowest rank."""
    warmup_seconds: float | None
    """Length of the first warm-up."""
    compile_seconds: float | None
    """Compile time; null if all of it was before the agent attached."""
    compilations: int | None
    """Compilations, forward and backward."""
    recompiles: int | None
    """Recompiles."""
    script: str | None
    """Base name of its script."""
    commit: str | None
    """Commit of the git work tree in which its script lies."""
    code: str | None
    """Hash of the code of all functions that were compiled."""
    torch: str | None
    """Version of PyTorch."""
    gpu: str | None
    """Product name of its GPUs."""
    mode: str | None
    """Mode of `torch.compile`."""


_COLUMNS = ", ".join(f'"{name}"' for name in Listed.__struct_fields__)


class Wanted(Struct, frozen=True, kw_only=True):
    """A query for runs; a field that is ``None`` matches all.

    Attributes:
        name, host: shell patterns.
        since: earliest time at which the run was last seen. until: latest time at which it began.
        state: its last state. id: prefix of its id.
        shown: exact name as displayed. called: exact name without the owner.
        script: its base name. warm: whether it became warm.
        limit: maximum number; 0: all. skip: number to skip.
    """

    name: str | None = None
    host: str | None = None
    since: float | None = None
    until: float | None = None
    state: str | None = None
    id: str | None = None
    shown: str | None = None
    called: str | None = None
    script: str | None = None
    warm: bool | None = None
    limit: int = 0
    skip: int = 0


def entry(summary: RunSummary) -> Listed:
    """The list entry of a run that may not be in the history."""
    row = run_row(summary)
    return Listed(**{name: row[name] for name in Listed.__struct_fields__})


def is_wanted(one: Listed, wanted: Wanted) -> bool:
    """Whether a run matches, as the query of the database does: by name, host, time and state."""
    named = wanted.name is None or any(fnmatchcase(x, wanted.name) for x in (one.run, one.name))
    hosted = wanted.host is None or fnmatchcase(one.host or "", wanted.host)
    recent = wanted.since is None or one.seen >= wanted.since
    return named and hosted and recent and wanted.state in (None, one.state)


def count(connection: sqlite3.Connection, wanted: Wanted) -> int:
    """The number of matching runs, regardless of the limit."""
    where, values = _where(wanted)
    return int(connection.execute(f"SELECT count(*) FROM runs{where}", values).fetchone()[0])  # noqa: S608


def listed(connection: sqlite3.Connection, wanted: Wanted) -> list[Listed]:
    """The matching runs, newest first. Raises RowError if one of them is damaged."""
    return [_listed(row) for row in _rows(connection, wanted)]


def readable(connection: sqlite3.Connection, wanted: Wanted) -> list[Listed]:
    """The matching runs, newest first, without damaged ones."""
    found = []
    for row in _rows(connection, wanted):
        with suppress(RowError):
            found.append(_listed(row))
    return found


def _rows(connection: sqlite3.Connection, wanted: Wanted) -> Iterable[tuple[Any, ...]]:
    where, values = _where(wanted)
    cursor = connection.cursor()
    cursor.row_factory = None  # tuples: faster for thousands of rows
    return cursor.execute(
        f"SELECT {_COLUMNS} FROM runs{where} ORDER BY began DESC LIMIT ? OFFSET ?",  # noqa: S608
        (*values, wanted.limit or -1, wanted.skip),
    )


def _listed(row: tuple[Any, ...]) -> Listed:
    try:
        return msgspec.convert(dict(zip(Listed.__struct_fields__, row, strict=True)), Listed)
    except msgspec.ValidationError as error:
        raise RowError(f"run {row[0]!r}: {error}") from None


def _where(wanted: Wanted) -> tuple[str, list[Any]]:
    terms: list[str] = []
    values: list[Any] = []
    for term, *given in (
        ("(run GLOB ? OR name GLOB ?)", _glob(wanted.name), _glob(wanted.name)),
        ("host GLOB ?", _glob(wanted.host)),
        ("seen >= ?", wanted.since),
        ("began <= ?", wanted.until),
        ("state = ?", wanted.state),
        ("run = ?", _spelled(wanted.shown)),
        ("name = ?", _spelled(wanted.called)),
        ("script = ?", _spelled(wanted.script)),
        ("(warmup_seconds IS NOT NULL) = ?", wanted.warm),
        ("id >= ? AND id < ?", _spelled(wanted.id), f"{_spelled(wanted.id)}\uffff"),
    ):
        if given[0] is not None:
            terms.append(term)
            values += given
    return (f" WHERE {' AND '.join(terms)}" if terms else ""), values


def _glob(pattern: str | None) -> str | None:
    """A shell pattern in SQLite's syntax, which has ``[^a]`` for ``[!a]``."""
    spelled = _spelled(pattern)
    return None if spelled is None else spelled.replace("[!", "[^")


def _spelled(text: str | None) -> str | None:
    """Text as it is stored: undecodable bytes of a command line are escaped."""
    return None if text is None else printable(text)
