"""The store of run summaries: write, merge with an earlier write, read, list, evict."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict, replace

from warmwatch.shared.states import ENDED_STATES
from warmwatch_monitor.base.errors import RefusedRunsError
from warmwatch_monitor.base.settings import HistorySettings
from warmwatch_monitor.history import rows
from warmwatch_monitor.history.database import OF_A_ROW, Database, transaction
from warmwatch_monitor.history.listing import Listed, RunQuery, count, listed, readable
from warmwatch_monitor.model.figures import RankHistory
from warmwatch_monitor.model.run_summary import Provenance, RankSummary, RunSummary, Samples

if TYPE_CHECKING:
    import sqlite3  # which not every Python has

_MOST_PERIODS = 16  # in which a rank was slower, as many as a daemon keeps
_STILL_SLOW = 1.5  # times as long as before
_RECORDED_ENDS = ENDED_STATES - {"lost"}


def is_news(before: RunSummary, now: RunSummary) -> bool:
    """Whether ``now`` has more information than ``before``, a summary of the same run."""
    if now.seen < before.seen:  # an older snapshot, or the clock was set back
        return (
            before.state not in ENDED_STATES
            and now.state in ENDED_STATES
            and _attached(before) <= _attached(now)
        )
    if before.state not in _RECORDED_ENDS or now.state in ENDED_STATES:
        return True
    attached = (rank.answer.get("attached_at") for rank in now.ranks)
    return before.ended is not None and any(at is not None and at > before.ended for at in attached)


def _attached(summary: RunSummary) -> float:
    """When the last of its ranks attached."""
    generator = (rank.answer.get("attached_at") for rank in summary.ranks)
    return max((at for at in generator if at is not None), default=0.0)


def merged(before: RunSummary, now: RunSummary) -> RunSummary:
    """``now``, completed with what only ``before`` has."""
    earlier = {rank.rank: rank for rank in before.ranks}
    return replace(
        now,
        began=min(before.began, now.began),
        what=_provenance(before.what, now.what),
        ranks=tuple(_rank(earlier.get(rank.rank), rank) for rank in now.ranks),
        gpu_samples={**before.gpu_samples, **now.gpu_samples},
    )


def _rank(before: RankSummary | None, now: RankSummary) -> RankSummary:
    if before is None or before.answer.get("attached_at") != now.answer.get("attached_at"):
        return now
    gone = len(now.compiled) < len(before.compiled)  # the journal was removed with its record
    return replace(
        now,
        answer=_answer(before.answer, now.answer),
        compiled=before.compiled if gone else now.compiled,
        left_out=max(before.left_out, now.left_out),
        samples=before.samples if now.samples is None else now.samples,
        first_step_bytes=before.first_step_bytes if gone else now.first_step_bytes,
        death=now.death or before.death,
        outside=now.outside or before.outside,
    )


def _answer(before: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """``now``, with what only ``before`` saw: slower periods, and what limited an ended rank.

    So with compilers below it, of which its record has nothing. The energy is of the one that
    covers more of the compile time.
    """
    values = dict(now)
    if now.get("state") in ENDED_STATES and now.get("limited_by") is None:
        values["limited_by"] = before.get("limited_by")
    if _covered(before) > _covered(now):
        values["energy"] = before["energy"]
    if missing := max(0.0, _outside(before) - _outside(now)):
        spent = now["compile"]["phase_seconds"] or {}
        values["compile"] = {
            **now["compile"],
            "seconds": (now["compile"]["seconds"] or 0.0) + missing,
            "phase_seconds": {**spent, "outside": _outside(before)},
        }
    if earlier := before.get("slower_periods"):
        recent = (now.get("step_seconds") or {}).get("recent") or 0.0
        values["slower_periods"] = _periods(earlier, now.get("slower_periods") or (), recent)
    return values


def _periods(
    before: Iterable[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], recent_seconds: float
) -> list[Mapping[str, Any]]:
    """The periods of both. If only one of them saw the start of a period, its values count.

    A period that lasted then stays open if the last steps are still slow and ``now`` has none. The
    causes of one that ``now`` did not follow are those known before.
    """
    groups = {result["until_step"]: result for result in before}
    lasting = groups.pop(None, None)
    for fields in now:
        end = fields["until_step"]
        values = groups.get(end, lasting)
        if fields["since_step"] is None and values and values["since_step"] is not None:
            groups[end] = {**values, "until_step": end, "ended_at": fields["ended_at"]}
        else:
            same = values and values["since_step"] in (None, fields["since_step"])
            causes = values["causes"] if values and same else None
            groups[end] = {**fields, "causes": fields["causes"] or causes or fields["causes"]}
    if lasting and not now and recent_seconds >= _STILL_SLOW * lasting["before"]:
        groups[None] = lasting
    return list(groups.values())[-_MOST_PERIODS:]


def _covered(answer: Mapping[str, Any]) -> float:
    energy = answer.get("energy")
    return -1.0 if not energy else float(energy.get("covered_seconds") or 0.0)


def _outside(answer: Mapping[str, Any]) -> float:
    spent = (answer.get("compile") or {}).get("phase_seconds") or {}
    return float(spent.get("outside") or 0.0)


def _provenance(before: Provenance, now: Provenance) -> Provenance:
    values = {name: value for name, value in asdict(now).items() if value}
    return replace(before, **values)


# errors of a single run, stored or to be written, and not of the whole file
_OF_ONE_RUN: tuple[type[Exception], ...] = (
    *(OverflowError, UnicodeEncodeError, msgspec.MsgspecError),
    *OF_A_ROW,
)
_WITNESSES = 20  # runs
_EVICTED_SHARE = 0.02  # of all runs, evicted together while the file is too large


class Store:
    """The history of runs. ``patience``: seconds to wait for another writer.

    Raises:
        StoreError: the history is off; from every method: it cannot be read or written.
    """

    def __init__(self, settings: HistorySettings, *, patience: float = 5.0) -> None:
        self._database = Database(settings, patience=patience)
        self._settings, self.path = settings, self._database.path

    @property
    def is_read_only(self) -> bool:
        """Whether root reads another user's history, such as the service's."""
        return self._database.is_read_only

    def save(self, summaries: Iterable[RunSummary]) -> None:
        """Write summaries that have news, and evict the oldest runs.

        Raises:
            RefusedRunsError: some cannot be stored; raised after the others were written.
        """
        refused: dict[str, str] = {}
        with self._database.writing() as connection:
            for summary in summaries:
                try:
                    with transaction(connection):
                        _save(connection, summary)
                except _OF_ONE_RUN as error:
                    text = f"run {summary.run!r} ({summary.id}) cannot be stored: {error}"
                    refused[summary.id] = text
            self._prune(connection)
        if refused:
            raise RefusedRunsError(next(iter(refused.values())), frozenset(refused))

    def load(self, id: str) -> RunSummary | None:
        with self._database.reading() as connection:
            return _load(connection, id)

    def summaries(self, ids: Iterable[str]) -> list[RunSummary]:
        """The runs with these ids, without samples; damaged ones are left out."""
        result = []
        with self._database.reading() as connection:
            for id in ids:
                with suppress(rows.RowError):  # ``load`` of that run raises it
                    result.append(_load(connection, id, samples=False))
        return [run for run in result if run is not None]

    def samples(self, id: str) -> tuple[Mapping[int, Samples], Mapping[str, Samples]]:
        """Samples of a run by rank, and by GPU uuid; empty if they are damaged."""
        # ``save`` raises a RowError
        with self._database.reading() as connection, suppress(rows.RowError), rows.of_run(id):
            return rows.samples_of(_of(connection, _SAMPLES, id))
        return {}, {}

    def ended(self, ids: Collection[str]) -> set[str]:
        """Those of ``ids`` whose end is stored."""
        with self._database.reading() as connection:
            return {id for id in ids if _state(connection, id) in ENDED_STATES}

    def ends(self, ids: Iterable[str]) -> dict[str, str]:
        """How the first rank of each ended, as far as stored; without damaged runs."""
        ends = {}
        with self._database.reading() as connection:
            for id in ids:
                answer = connection.execute(_FIRST_ANSWER, (id,)).fetchone()
                with suppress(rows.RowError), rows.of_run(id):
                    if answer is not None and (how := rows.end_of(answer["answer"])):
                        ends[id] = how
        return ends

    def seen(self) -> Mapping[tuple[str, int, float], RankHistory]:
        """What daemons saw of ranks, by start of their run, rank, and when they attached."""
        seen: dict[tuple[str, int, float], RankHistory] = {}
        with self._database.reading() as connection:
            for row in connection.execute(_SEEN):
                # ``load`` of that run raises it
                with suppress(rows.RowError), rows.of_run(row["id"]):
                    history = RankHistory(**rows.seen_of(row))
                    seen[row["start"], row["rank"], row["attached"]] = history
        return seen

    def listed(self, query: RunQuery = RunQuery()) -> list[Listed]:  # noqa: B008 - frozen
        """The matching runs, newest first."""
        with self._database.reading() as connection:
            return listed(connection, query)

    def readable(self, query: RunQuery) -> list[Listed]:
        """The matching runs, newest first, without damaged ones."""
        with self._database.reading() as connection:
            return readable(connection, query)

    def count(self, query: RunQuery = RunQuery()) -> int:  # noqa: B008 - frozen
        """The number of matching runs, regardless of the limit."""
        with self._database.reading() as connection:
            return count(connection, query)

    def _prune(self, connection: sqlite3.Connection) -> None:
        if (today := _today(connection)) is not None:
            oldest = today - self._settings.days * 86400.0
            connection.execute("DELETE FROM runs WHERE seen < ?", (oldest,))
        _evict(connection, count(connection, RunQuery()) - self._settings.runs)
        limit = self._settings.megabytes * 1_000_000
        while (left := count(connection, RunQuery())) > 1 and _bytes(connection) > limit:
            _evict(connection, max(1, int(left * _EVICTED_SHARE)))
        connection.executescript("PRAGMA incremental_vacuum")  # execute() would free one page


def _today(connection: sqlite3.Connection) -> float | None:
    """The time that ages are counted from; ``None`` while there are few runs.

    A clock set years ahead does not expire the history: the time counts only once many runs were
    seen at it.
    """
    row = connection.execute(
        "SELECT seen FROM runs ORDER BY seen DESC LIMIT 1 OFFSET ?", (_WITNESSES - 1,)
    ).fetchone()
    return None if row is None else min(time.time(), float(row["seen"]))


_SEEN = """
SELECT id, start, rank, attached, death, outside FROM ranks JOIN runs USING (id)
WHERE death NOTNULL OR outside NOTNULL
"""
_EVICT = """
DELETE FROM runs WHERE id IN (
  SELECT id FROM runs
  ORDER BY row_number() OVER (PARTITION BY owner ORDER BY seen DESC) DESC, seen LIMIT ?)
"""
_RANKS = "SELECT * FROM ranks WHERE id = ? ORDER BY rank"
# `what` by name: SQLite then says that an older file has no such column
_COMPILATIONS = "SELECT *, what FROM compilations WHERE id = ? ORDER BY rank, number"
_SAMPLES = "SELECT * FROM samples WHERE id = ? ORDER BY rank, gpu"


_FIRST_ANSWER = "SELECT answer FROM ranks WHERE id = ? ORDER BY rank LIMIT 1"


def _of(connection: sqlite3.Connection, query: str, id: str) -> Iterator[dict[str, Any]]:
    return (dict(row) for row in connection.execute(query, (id,)))


def _load(connection: sqlite3.Connection, id: str, *, samples: bool = True) -> RunSummary | None:
    run = connection.execute("SELECT * FROM runs WHERE id = ?", (id,)).fetchone()
    if run is None:
        return None
    with rows.of_run(id):
        return rows.summary_of(
            dict(run),
            _of(connection, _RANKS, id),
            _of(connection, _COMPILATIONS, id),
            _of(connection, _SAMPLES, id) if samples else (),
        )


def _state(connection: sqlite3.Connection, id: str) -> str | None:
    value = connection.execute("SELECT state FROM runs WHERE id = ?", (id,)).fetchone()
    return None if value is None else str(value["state"])


def _save(connection: sqlite3.Connection, summary: RunSummary) -> None:
    before = _load(connection, summary.id)
    if before is not None:
        if not is_news(before, summary):
            return
        summary = merged(before, summary)
    _put(connection, summary)
    for table in ("ranks", "samples"):
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (summary.id,))  # noqa: S608
    _insert(connection, "ranks", rows.rank_rows(summary))
    _insert(connection, "samples", rows.sample_rows(summary))
    groups = {} if before is None else {item.rank: item.compiled for item in before.ranks}
    for rank in summary.ranks:
        if groups.pop(rank.rank, ()) != rank.compiled:  # mostly unchanged while a run goes on
            _delete_compilations(connection, summary.id, rank.rank)
            _insert(connection, "compilations", rows.compilation_rows(summary.id, rank))
    for gone in groups:
        _delete_compilations(connection, summary.id, gone)
    _delete_renamed(connection, summary)


def _put(connection: sqlite3.Connection, summary: RunSummary) -> None:
    """Insert or update; deleting the row would delete the rows that refer to it."""
    row = rows.run_row(summary)
    names, places = _names(row)
    updates = ", ".join(f'"{name}" = excluded."{name}"' for name in row)
    connection.execute(
        f"INSERT INTO runs ({names}) VALUES ({places}) ON CONFLICT (id) DO UPDATE SET {updates}",  # noqa: S608
        row,
    )


def _delete_compilations(connection: sqlite3.Connection, id: str, rank: int) -> None:
    connection.execute("DELETE FROM compilations WHERE id = ? AND rank = ?", (id, rank))


def _delete_renamed(connection: sqlite3.Connection, summary: RunSummary) -> None:
    """Delete the runs of the same processes under names that were changed since."""
    attached = [rank.answer.get("attached_at") for rank in summary.ranks]
    places = ", ".join("?" * len(attached))
    connection.execute(
        "DELETE FROM runs WHERE start = ? AND id != ? "  # noqa: S608
        "AND state NOT IN ('finished', 'failed', 'lost') AND NOT EXISTS "
        "(SELECT 1 FROM ranks WHERE ranks.id = runs.id "
        f"AND (attached IS NULL OR attached NOT IN ({places})))",
        (summary.start, summary.id, *attached),
    )


def _insert(connection: sqlite3.Connection, table: str, values: Sequence[dict[str, Any]]) -> None:
    if values:
        names, places = _names(values[0])
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", values)  # noqa: S608


def _names(row: Mapping[str, Any]) -> tuple[str, str]:
    """The columns of a row and their placeholders, as SQL."""
    return ", ".join(f'"{name}"' for name in row), ", ".join(f":{name}" for name in row)


def _evict(connection: sqlite3.Connection, many: int) -> None:
    """Delete the oldest runs of the user who has most, so that no user evicts another's runs."""
    if many > 0:
        connection.execute(_EVICT, (many,))


def _bytes(connection: sqlite3.Connection) -> int:
    """Size of the database without free pages."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
