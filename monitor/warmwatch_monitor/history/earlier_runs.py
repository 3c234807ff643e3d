"""Earlier runs that are comparable with current ones, read as a data source in its own thread.

The database is queried once per rank, when it first compiles (by a daemon also later), and again
when the run's identity changes. So no answer waits for a disk. A history that cannot be read costs
the estimates and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from itertools import islice
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from warmwatch_monitor.base.errors import SourceError, StoreError
from warmwatch_monitor.history.comparability import (
    Known,
    compiles_the_same,
    first_graphs,
    first_warmup,
    is_comparable,
    known_of,
)
from warmwatch_monitor.history.listing import Listed, RunQuery
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.history.summaries import start_of_record, what_of
from warmwatch_monitor.model.budgets import HISTORY_SHARE
from warmwatch_monitor.model.figures import RankHistory
from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.model.records import RecordReading, owned
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.sources.records.parsed_journal import parse_journal

T = TypeVar("T")

MOST = 5  # earlier runs that are compared with one
_LISTED, _LOADED = 40, 10  # runs of its name that are listed and loaded to find those
_MOST_CALLS = 20  # of torch.compile: a loop may call it at each step
_NOTHING = RankHistory()


class _Cached(Struct, frozen=True):
    """A result of the history for a record, and the ``key`` that it depends on."""

    key: object
    known: RankHistory


class _Queries:
    """The queries of one poll, cached: all ranks of a run make the same ones."""

    def __init__(self, store: Store) -> None:
        self.readable, self.summaries = cache(store.readable), cache(store.summaries)


class EarlierRuns:
    """Earlier runs by record. ``is_due``: whether to query the history for a record.

    Each query parses the record's journal. After ``within`` seconds of CPU time the other records
    wait: the journals of a thousand runs take minutes.
    """

    def __init__(
        self,
        store: Store,
        is_due: Callable[[RecordReading], bool],
        within: float = float("inf"),
    ) -> None:
        self._store, self._is_due, self._within = store, is_due, within
        self._rests_until = float("-inf")
        self._cache: dict[str, _Cached] = {}
        self._seen: Mapping[tuple[str, int, float], RankHistory] | None = None
        self._before: dict[str, RankHistory] = {}

    def read(
        self, records: Iterable[RecordReading], gpus: Iterable[GpuReading]
    ) -> Mapping[str, RankHistory]:
        """The results by record folder, of records that are or were due. Raises SourceError."""
        records = tuple(records)
        before = self._seen_before(records)
        records = [record for record in records if record.alive]
        used = owned(records, gpus)
        there = {record.folder for record in records}
        self._cache = {folder: cached for folder, cached in self._cache.items() if folder in there}
        if time.monotonic() >= self._rests_until:
            self._query([record for record in records if self._is_due(record)], used)
        for folder, cached in self._cache.items():
            outside = before.get(folder, _NOTHING).outside
            before[folder] = replace(cached.known, outside=outside)
        return before

    def _seen_before(self, records: Iterable[RecordReading]) -> dict[str, RankHistory]:
        """What daemons saw of ``records`` before this one started: signals, builds below a rank.

        Queried once: what happens later, this daemon sees.
        """
        histories, self._before = self._before, {}
        for record in records:
            if self._seen is None:
                self._seen = _explained(self._store.seen)
            if record.folder not in histories:
                key = start_of_record(record), record.slot.identity.rank, _attached(record)
                histories[record.folder] = self._seen.get(key, _NOTHING)
            self._before[record.folder] = histories[record.folder]
        return {folder: seen for folder, seen in self._before.items() if seen is not _NOTHING}

    def _query(self, due: list[RecordReading], used: Mapping[str, tuple[GpuReading, ...]]) -> None:
        keys = {item.folder: _key(item, used[item.folder]) for item in due}
        queries, began = _Queries(self._store), time.thread_time()
        new = [item for item in due if self._is_new(item, keys[item.folder])]
        for reading in new:
            names = tuple(gpu.name for gpu in used[reading.folder])
            history = _explained(partial(_earlier, queries, reading, names))
            self._cache[reading.folder] = _Cached(keys[reading.folder], history)
            if (spent := time.thread_time() - began) > self._within:
                self._rests_until = time.monotonic() + spent / HISTORY_SHARE
                return

    def _is_new(self, reading: RecordReading, key: object) -> bool:
        before = self._cache.get(reading.folder)
        return before is None or before.key != key


def _key(reading: RecordReading, gpus: tuple[GpuReading, ...]) -> object:
    """What the earlier runs of a record depend on."""
    counts, names = reading.slot.compile, tuple(gpu.name for gpu in gpus)
    return min(counts.wrappers, _MOST_CALLS), names, reading.slot.identity, counts.warmups > 0


def _explained(query: Callable[[], T]) -> T:
    """The result of ``query``. Raises SourceError."""
    try:
        return query()
    except StoreError as error:
        raise SourceError(str(error)) from None


def _attached(reading: RecordReading) -> float:
    return reading.slot.header.attached_epoch_ns / 1e9


def _earlier(
    queries: _Queries, reading: RecordReading, gpus: tuple[str | None, ...]
) -> RankHistory:
    now, rank = _as_known(reading, gpus), reading.slot.identity.rank
    runs = _comparable(queries, now, _attached(reading), start_of_record(reading))
    same = (first_warmup(each, rank) for each in runs if compiles_the_same(now, each))
    warmups = (first_warmup(each, rank) for each in runs)
    return RankHistory(
        same=tuple(each for each in same if each is not None),
        warmup_seconds=tuple(each.seconds for each in warmups if each is not None),
    )


def earlier(store: Store, summary: RunSummary) -> list[RunSummary]:
    """The earlier runs that ``summary`` is comparable with, newest first. Raises StoreError."""
    return _comparable(_Queries(store), known_of(summary), summary.began, summary.start)


def _comparable(queries: _Queries, now: Known, began: float, start: str | None) -> list[RunSummary]:
    """Runs of its name or script that became warm and belong to another launch."""
    either = [RunQuery(called=now.run, warm=True, limit=_LISTED)]
    if now.what.script:
        either.append(RunQuery(script=now.what.script, warm=True, limit=_LISTED))
    listeds = {listed.id: listed for each in either for listed in queries.readable(each)}
    ordered = sorted(listeds.values(), key=lambda entry: -entry.began)
    likely = (listed.id for listed in ordered if _may_be(listed, now) and listed.began < began)
    loaded = queries.summaries(tuple(islice(likely, _LOADED)))
    generator = (run for run in loaded if run.start != start)
    return [run for run in generator if is_comparable(now, run)][:MOST]


def _may_be(listed: Listed, now: Known) -> bool:
    """Whether it can be comparable, from its list entry."""
    models = ", ".join(dict.fromkeys(now.what.gpus)) or None
    return listed.world_size == now.what.world_size and listed.gpu == models


def _as_known(reading: RecordReading, gpus: tuple[str | None, ...]) -> Known:
    shown = reading.reported_run or reading.slot.identity.run
    parsed = parse_journal(reading.folder)
    return Known(
        run=reading.owner.plain(shown) if reading.owner else shown,
        owner=reading.owner.name if reading.owner else None,
        host=reading.slot.identity.host or None,
        what=what_of(reading.slot.identity, (parsed,), tuple(name for name in gpus if name)),
        graphs=first_graphs((made.name, made.ops) for made in parsed.compilations),
    )
