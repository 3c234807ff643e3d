"""The store of run summaries: write, merge with an earlier write, read, list, evict."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from warmwatch.shared.states import ENDED_STATES
from warmwatch_monitor.errors import RefusedRunsError
from warmwatch_monitor.history import rows
from warmwatch_monitor.history.database import MIGRATIONS, Database, transaction
from warmwatch_monitor.history.listing import Listed, Wanted, count, listed, sound
from warmwatch_monitor.model.run_summary import Provenance, RankSummary, RunSummary, Samples
from warmwatch_monitor.settings import CleanupLock

_SAID = ENDED_STATES - {"lost"}


def is_news(before: RunSummary, now: RunSummary) -> bool:
    """Whether ``now`` says more than ``before``, which is of the same run."""
    if now.seen < before.seen:  # a look that is older, or a clock that was set back meanwhile
        return (
            before.state not in ENDED_STATES
            and now.state in ENDED_STATES
            and _attached(before) <= _attached(now)
        )
    if before.state not in _SAID or now.state in ENDED_STATES:
        return True
    attached = (one.answer.get("attached_at") for one in now.ranks)
    return before.ended is not None and any(at is not None and at > before.ended for at in attached)


def _attached(account: RunSummary) -> float:
    """When the last of its ranks did."""
    known = (one.answer.get("attached_at") for one in account.ranks)
    return max((at for at in known if at is not None), default=0.0)


def merged(before: RunSummary, now: RunSummary) -> RunSummary:
    """``now``, with what ``before`` knew beyond it."""
    earlier = {one.rank: one for one in before.ranks}
    return replace(
        now,
        began=min(before.began, now.began),
        what=_provenance(before.what, now.what),
        ranks=tuple(_rank(earlier.get(one.rank), one) for one in now.ranks),
        gpu_samples={**before.gpu_samples, **now.gpu_samples},
    )


def _rank(before: RankSummary | None, now: RankSummary) -> RankSummary:
    if before is None or before.answer.get("attached_at") != now.answer.get("attached_at"):
        return now
    gone = len(now.compiled) < len(before.compiled)  # the record is, and its journal with it
    return replace(
        now,
        answer=_answer(before.answer, now.answer),
        compiled=before.compiled if gone else now.compiled,
        left_out=max(before.left_out, now.left_out),
        samples=before.samples if now.samples is None else now.samples,
        first_step_bytes=before.first_step_bytes if gone else now.first_step_bytes,
    )


def _answer(before: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """Energy is measured by who was there: whose account covers more of the compile time."""
    if _covered(before) <= _covered(now):
        return now
    return {**now, "energy": before["energy"]}


def _covered(answer: Mapping[str, Any]) -> float:
    energy = answer.get("energy")
    return -1.0 if not energy else float(energy.get("covered_seconds") or 0.0)


def _provenance(before: Provenance, now: Provenance) -> Provenance:
    known = {name: value for name, value in asdict(now).items() if value}
    return replace(before, **known)


# what is wrong with one run, in what is to be written or in what is there: not with the file
_OF_ONE_RUN = (
    *(OverflowError, UnicodeEncodeError, msgspec.MsgspecError),
    *(sqlite3.IntegrityError, sqlite3.DataError),
)
_WITNESSES = 20  # runs
_LEAVE_AT_ONCE = 0.02  # of all runs, where the file is too large


class Store:
    """The history that ``keeping`` names. ``patience``: seconds to wait for another writer.

    Raises:
        StoreError: none is kept; and from every method: it cannot be read or written now.
    """

    def __init__(
        self,
        keeping: CleanupLock,
        *,
        patience: float = 5.0,
        migrations: Sequence[Sequence[str]] = MIGRATIONS,
    ) -> None:
        self._database = Database(keeping, patience=patience, migrations=migrations)
        self._keeping, self.path = keeping, self._database.path

    def save(self, accounts: Iterable[RunSummary]) -> None:
        """Write them, where they say more than what is there, and let go of the oldest.

        Raises:
            RefusedRunsError: no row can hold some of them; those are said when the others are
            written.
        """
        refused: dict[str, str] = {}
        with self._database.writing() as connection:
            for account in accounts:
                try:
                    with transaction(connection):
                        _save(connection, account)
                except _OF_ONE_RUN as error:
                    words = f"run {account.run!r} ({account.id}) cannot be remembered: {error}"
                    refused[account.id] = words
            self._prune(connection)
        if refused:
            raise RefusedRunsError(next(iter(refused.values())), frozenset(refused))

    def load(self, id: str) -> RunSummary | None:
        """The run with this id."""
        with self._database.reading() as connection:
            return None if connection is None else _load(connection, id)

    def told(self, ids: Iterable[str]) -> list[RunSummary]:
        """These runs, without what was seen as time went; none of which a row is damaged."""
        with self._database.reading() as connection:
            if connection is None:
                return []
            found = []
            for id in ids:
                with suppress(rows.RowError):  # it is said where that run is asked for
                    found.append(_load(connection, id, samples=False))
            return [one for one in found if one is not None]

    def samples(self, id: str) -> tuple[Mapping[int, Samples], Mapping[str, Samples]]:
        """Of this run's ranks and GPUs."""
        with self._database.reading() as connection, suppress(rows.RowError):  # ``save`` says it
            if connection is not None:
                return rows.samples_of(id, _of(connection, _SAMPLES, id))
        return {}, {}

    def ended(self, ids: Collection[str]) -> set[str]:
        """Those of ``ids`` that are known to be over."""
        with self._database.reading() as connection:
            if connection is None:
                return set()
            return {id for id in ids if _state(connection, id) in ENDED_STATES}

    def listed(self, wanted: Wanted = Wanted()) -> list[Listed]:  # noqa: B008 - frozen
        """The runs that are wanted, newest first."""
        with self._database.reading() as connection:
            return [] if connection is None else listed(connection, wanted)

    def sound(self, wanted: Wanted) -> list[Listed]:
        """The same, but for those of which a row is damaged."""
        with self._database.reading() as connection:
            return [] if connection is None else sound(connection, wanted)

    def count(self, wanted: Wanted = Wanted()) -> int:  # noqa: B008 - frozen
        """How many runs are wanted, whatever the limit."""
        with self._database.reading() as connection:
            return 0 if connection is None else count(connection, wanted)

    def _prune(self, connection: sqlite3.Connection) -> None:
        if (today := _today(connection)) is not None:
            oldest = today - self._keeping.days * 86400.0
            connection.execute("DELETE FROM runs WHERE seen < ?", (oldest,))
        _let_go(connection, count(connection, Wanted()) - self._keeping.runs)
        limit = self._keeping.megabytes * 1_000_000
        while (left := count(connection, Wanted())) > 1 and _bytes(connection) > limit:
            _let_go(connection, max(1, int(left * _LEAVE_AT_ONCE)))
        connection.executescript("PRAGMA incremental_vacuum")  # execute() takes one step of it


def _today(connection: sqlite3.Connection) -> float | None:
    """What age is counted from: a clock that is years ahead is not believed before many runs were
    seen by it, else one of them would be the end of all that is remembered."""
    row = connection.execute(
        "SELECT seen FROM runs ORDER BY seen DESC LIMIT 1 OFFSET ?", (_WITNESSES - 1,)
    ).fetchone()
    return None if row is None else min(time.time(), float(row["seen"]))


_RANKS = "SELECT * FROM ranks WHERE id = ? ORDER BY rank"
_COMPILATIONS = "SELECT * FROM compilations WHERE id = ? ORDER BY rank, number"
_SAMPLES = "SELECT * FROM samples WHERE id = ? ORDER BY rank, gpu"


def _of(connection: sqlite3.Connection, question: str, id: str) -> Iterator[dict[str, Any]]:
    return (dict(row) for row in connection.execute(question, (id,)))


def _load(connection: sqlite3.Connection, id: str, *, samples: bool = True) -> RunSummary | None:
    run = connection.execute("SELECT * FROM runs WHERE id = ?", (id,)).fetchone()
    if run is None:
        return None
    return rows.account(
        dict(run),
        _of(connection, _RANKS, id),
        _of(connection, _COMPILATIONS, id),
        _of(connection, _SAMPLES, id) if samples else (),
    )


def _state(connection: sqlite3.Connection, id: str) -> str | None:
    found = connection.execute("SELECT state FROM runs WHERE id = ?", (id,)).fetchone()
    return None if found is None else str(found["state"])


def _save(connection: sqlite3.Connection, account: RunSummary) -> None:
    before = _load(connection, account.id)
    if before is not None:
        if not is_news(before, account):
            return
        account = merged(before, account)
    _put(connection, account)
    for table in ("ranks", "samples"):
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (account.id,))  # noqa: S608
    _insert(connection, "ranks", rows.rank_rows(account))
    _insert(connection, "samples", rows.sample_rows(account))
    known = {} if before is None else {one.rank: one.compiled for one in before.ranks}
    for rank in account.ranks:
        if known.pop(rank.rank, ()) != rank.compiled:  # of a run that goes on it stays mostly as is
            _forget_compilations(connection, account.id, rank.rank)
            _insert(connection, "compilations", rows.compilation_rows(account.id, rank))
    for gone in known:
        _forget_compilations(connection, account.id, gone)
    _forget_as_called_before(connection, account)


def _put(connection: sqlite3.Connection, account: RunSummary) -> None:
    """In place, for what belongs to it goes where it is removed."""
    row = rows.run_row(account)
    names, places = _names(row)
    anew = ", ".join(f'"{name}" = excluded."{name}"' for name in row)
    connection.execute(
        f"INSERT INTO runs ({names}) VALUES ({places}) ON CONFLICT (id) DO UPDATE SET {anew}",  # noqa: S608
        row,
    )


def _forget_compilations(connection: sqlite3.Connection, id: str, rank: int) -> None:
    connection.execute("DELETE FROM compilations WHERE id = ? AND rank = ?", (id, rank))


def _forget_as_called_before(connection: sqlite3.Connection, account: RunSummary) -> None:
    """What was written of the same processes under a name that the run has no more."""
    attached = [one.answer.get("attached_at") for one in account.ranks]
    places = ", ".join("?" * len(attached))
    connection.execute(
        "DELETE FROM runs WHERE start = ? AND id != ? "  # noqa: S608
        "AND state NOT IN ('finished', 'failed', 'lost') AND NOT EXISTS "
        "(SELECT 1 FROM ranks WHERE ranks.id = runs.id "
        f"AND (attached IS NULL OR attached NOT IN ({places})))",
        (account.start, account.id, *attached),
    )


def _insert(connection: sqlite3.Connection, table: str, values: Sequence[dict[str, Any]]) -> None:
    if values:
        names, places = _names(values[0])
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", values)  # noqa: S608


def _names(row: Mapping[str, Any]) -> tuple[str, str]:
    """The columns of a row, and the places of their values."""
    return ", ".join(f'"{name}"' for name in row), ", ".join(f":{name}" for name in row)


def _let_go(connection: sqlite3.Connection, many: int) -> None:
    """Of those that were seen longest ago."""
    if many > 0:
        connection.execute(
            "DELETE FROM runs WHERE id IN (SELECT id FROM runs ORDER BY seen LIMIT ?)", (many,)
        )


def _bytes(connection: sqlite3.Connection) -> int:
    """That are in use; what was let go of is none."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
