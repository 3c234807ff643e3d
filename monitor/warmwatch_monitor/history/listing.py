"""List entries of the history, for ``warmwatch runs``, and the query that selects them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from warmwatch.shared.states import FINISHED_SO
from warmwatch.shared.values import printable
from warmwatch_monitor.history.rows import RowError, run_row
from warmwatch_monitor.model.run_summary import Epoch, RunSummary

if TYPE_CHECKING:
    import sqlite3  # which not every Python has


class Listed(Struct, frozen=True):
    """The list entry of a run. Figures of ranks are their maximum, lengths of steps and
    of the warm-up those of the rank that compiled longest; null: unknown."""

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
    """Length of a clean step over the whole run, as in a report."""
    warmup_seconds: float | None
    """Length of the first warm-up."""
    compile_seconds: float | None
    """Compile time; null if all of it was before the agent attached."""
    compilations: int | None
    """Compilations, forward and backward."""
    recompiles: int | None
    """Recompiles, with the one in progress."""
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


_ENDED_SO = """state = 'finished' AND ? = (
  SELECT json_extract(answer, '$.end.how') FROM ranks
  WHERE ranks.id = runs.id AND json_valid(answer) ORDER BY rank LIMIT 1
)"""
_COLUMNS = ", ".join(f'"{name}"' for name in Listed.__struct_fields__)


class RunQuery(Struct, frozen=True, kw_only=True):
    """A query for runs; a field that is ``None`` matches all.

    Attributes:
        name, host: shell patterns.
        since: earliest time at which the run was last seen. until: latest time at which it began.
        state: its last state, or one of FINISHED_SO. id: prefix of its id.
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


def matches(listed: Listed, query: RunQuery) -> bool:
    """Whether a run matches, as the query of the database does: by name, host, time and state."""
    named = query.name is None or any(fnmatchcase(x, query.name) for x in (listed.run, listed.name))
    hosted = query.host is None or fnmatchcase(listed.host or "", query.host)
    recent = query.since is None or listed.seen >= query.since
    return named and hosted and recent and query.state in (None, listed.state)


def count(connection: sqlite3.Connection, query: RunQuery) -> int:
    """The number of matching runs, regardless of the limit."""
    where, values = _where(query)
    return int(connection.execute(f"SELECT count(*) FROM runs{where}", values).fetchone()[0])  # noqa: S608


def listed(connection: sqlite3.Connection, query: RunQuery) -> list[Listed]:
    """The matching runs, newest first. Raises RowError if one of them is damaged."""
    return [_listed(row) for row in _rows(connection, query)]


def readable(connection: sqlite3.Connection, query: RunQuery) -> list[Listed]:
    """The matching runs, newest first, without damaged ones."""
    result = []
    for row in _rows(connection, query):
        with suppress(RowError):
            result.append(_listed(row))
    return result


def _rows(connection: sqlite3.Connection, query: RunQuery) -> Iterable[tuple[Any, ...]]:
    where, values = _where(query)
    cursor = connection.cursor()
    cursor.row_factory = None  # tuples: faster for thousands of rows
    return cursor.execute(
        f"SELECT {_COLUMNS} FROM runs{where} ORDER BY began DESC LIMIT ? OFFSET ?",  # noqa: S608
        (*values, query.limit or -1, query.skip),
    )


def _listed(row: tuple[Any, ...]) -> Listed:
    try:
        return msgspec.convert(dict(zip(Listed.__struct_fields__, row, strict=True)), Listed)
    except msgspec.ValidationError as error:
        raise RowError(f"run {row[0]!r}: {error}") from None


def _where(query: RunQuery) -> tuple[str, list[Any]]:
    terms: list[str] = []
    values: list[Any] = []
    for term, *given in (
        ("(run GLOB ? OR name GLOB ?)", _glob(query.name), _glob(query.name)),
        ("host GLOB ?", _glob(query.host)),
        ("seen >= ?", query.since),
        ("began <= ?", query.until),
        (_ENDED_SO if query.state in FINISHED_SO else "state = ?", query.state),
        ("run = ?", _spelled(query.shown)),
        ("name = ?", _spelled(query.called)),
        ("script = ?", _spelled(query.script)),
        ("(warmup_seconds IS NOT NULL) = ?", query.warm),
        ("id >= ? AND id < ?", _spelled(query.id), f"{_spelled(query.id)}\uffff"),
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
