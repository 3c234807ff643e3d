"""Short entries of the history, for ``warmwatch runs``, and their selection."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from warmwatch.shared.values import printable
from warmwatch_monitor.history.rows import RowError
from warmwatch_monitor.model.run_summary import Epoch

if TYPE_CHECKING:
    import sqlite3  # which not every Python has


class Listed(Struct, frozen=True):
    """A run in short. Of figures that each rank has, the greatest; ``None`` is "not known"."""

    id: str
    run: str
    name: str
    owner: str | None
    host: str | None
    state: str
    began: Epoch
    ended: Epoch | None
    seen: Epoch
    summary: str
    world_size: int | None
    ranks: int
    steps: int | None
    first_step_seconds: float | None
    step_seconds: float | None
    warmup_seconds: float | None
    compile_seconds: float | None
    compilations: int | None
    recompiles: int | None
    script: str | None
    commit: str | None
    code: str | None
    torch: str | None
    gpu: str | None
    mode: str | None


_COLUMNS = ", ".join(f'"{name}"' for name in Listed.__struct_fields__)


class Wanted(Struct, frozen=True, kw_only=True):
    """Which runs: each ``None`` means all. ``name``, ``host``: patterns, as a shell has them.

    Attributes:
        since: of when it was last seen. state: its last one. id: how it begins.
        shown: exactly the name as it is shown. called: as its owner called it.
        script: its base name. warm: those that became warm.
        limit: how many at most, 0: all of them. skip: how many to pass over.
    """

    name: str | None = None
    host: str | None = None
    since: float | None = None
    state: str | None = None
    id: str | None = None
    shown: str | None = None
    called: str | None = None
    script: str | None = None
    warm: bool | None = None
    limit: int = 0
    skip: int = 0


def count(connection: sqlite3.Connection, wanted: Wanted) -> int:
    """How many are wanted, whatever the limit."""
    where, values = _where(wanted)
    return int(connection.execute(f"SELECT count(*) FROM runs{where}", values).fetchone()[0])  # noqa: S608


def listed(connection: sqlite3.Connection, wanted: Wanted) -> list[Listed]:
    """Those that are wanted, newest first. Raises RowError: one of them is damaged."""
    return [_listed(row) for row in _rows(connection, wanted)]


def sound(connection: sqlite3.Connection, wanted: Wanted) -> list[Listed]:
    """The same, without those that are damaged."""
    found = []
    for row in _rows(connection, wanted):
        with suppress(RowError):
            found.append(_listed(row))
    return found


def _rows(connection: sqlite3.Connection, wanted: Wanted) -> Iterable[tuple[Any, ...]]:
    where, values = _where(wanted)
    cursor = connection.cursor()
    cursor.row_factory = None  # thousands of them: by place, not by name
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
    """As SQLite spells what a shell writes ``[!a]``."""
    spelled = _spelled(pattern)
    return None if spelled is None else spelled.replace("[!", "[^")


def _spelled(text: str | None) -> str | None:
    """As names are kept: bytes of a command line that are no text are spelled out."""
    return None if text is None else printable(text)
