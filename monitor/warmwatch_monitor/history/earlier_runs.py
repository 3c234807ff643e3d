"""What the history holds about present runs, read as a data source in its own thread.

The database is asked once for a rank's run, when it first compiles (a daemon also where it comes
later), and again where the run has since said more of what it is. So no answer waits for a disk,
and a history that cannot be read leaves the estimates out and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import islice

from msgspec import Struct

from warmwatch_monitor.errors import SourceError, StoreError
from warmwatch_monitor.history.comparability import (
    Known,
    is_alike,
    is_comparable,
    known_of,
    precedent,
)
from warmwatch_monitor.history.listing import Listed, Wanted
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.history.summaries import start_of_record, what_of
from warmwatch_monitor.model import GpuReading, RecordReading, Remembered
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.pipeline.runs import owned
from warmwatch_monitor.sources.records.parsed_journal import parse_journal

MOST = 5  # earlier runs that are held against one
_LISTED, _LOOKED_AT = 40, 10  # of its name, to find those
_MOST_CALLS = 20  # of torch.compile: a loop may call it at each step


class _Asked(Struct, frozen=True):
    """What the history was asked of a record, and what it knew."""

    about: object
    known: Remembered


class _Look:
    """One look at the history: what the ranks of a run all ask, it is asked once."""

    def __init__(self, store: Store) -> None:
        self.sound, self.told = cache(store.sound), cache(store.told)


class EarlierRuns:
    """Of the records that are seen. ``is_due``: whether the history is to be asked about one."""

    def __init__(self, store: Store, is_due: Callable[[RecordReading], bool]) -> None:
        self._store, self._is_due = store, is_due
        self._asked: dict[str, _Asked] = {}

    def read(
        self, records: Iterable[RecordReading], gpus: Iterable[GpuReading]
    ) -> Mapping[str, Remembered]:
        """By record, of those that are due and those that were. Raises SourceError."""
        records = [one for one in records if one.alive]
        used = owned(records, gpus)
        there = {one.folder for one in records}
        self._asked = {folder: one for folder, one in self._asked.items() if folder in there}
        look = _Look(self._store)
        for one in records:
            if self._is_due(one):
                self._ask(look, one, used[one.folder])
        return {folder: one.known for folder, one in self._asked.items()}

    def _ask(self, look: _Look, one: RecordReading, gpus: tuple[GpuReading, ...]) -> None:
        counts, names = one.slot.compile, tuple(gpu.name for gpu in gpus)
        calls = min(counts.wrappers, _MOST_CALLS)
        about = calls, names, one.slot.identity, counts.warmups > 0
        before = self._asked.get(one.folder)
        if before is None or before.about != about:
            try:
                known = _remembered(look, one, names)
            except StoreError as error:
                raise SourceError(str(error)) from None
            self._asked[one.folder] = _Asked(about, known)


def _remembered(look: _Look, one: RecordReading, gpus: tuple[str | None, ...]) -> Remembered:
    now, rank = _as_known(one, gpus), one.slot.identity.rank
    attached = one.slot.header.attached_epoch_ns / 1e9
    found = _comparable(look, now, attached, start_of_record(one))
    alike = (precedent(each, rank) for each in found if is_alike(now, each))
    warmups = (precedent(each, rank) for each in found)
    return Remembered(
        precedents=tuple(each for each in alike if each is not None),
        warmups=tuple(each.seconds for each in warmups if each is not None),
    )


def earlier(store: Store, account: RunSummary) -> list[RunSummary]:
    """The runs before ``account`` that it may be held against, newest first. Raises StoreError."""
    return _comparable(_Look(store), known_of(account), account.began, account.start)


def _comparable(look: _Look, now: Known, began: float, start: str | None) -> list[RunSummary]:
    """Those of its name, and of its script, that became warm and are of another start."""
    wanted = [Wanted(called=now.run, warm=True, limit=_LISTED)]
    if now.what.script:
        wanted.append(Wanted(script=now.what.script, warm=True, limit=_LISTED))
    found = {one.id: one for each in wanted for one in look.sound(each)}
    ordered = sorted(found.values(), key=lambda one: -one.began)
    likely = (one.id for one in ordered if _may_be(one, now) and one.began < began)
    known = (one for one in look.told(tuple(islice(likely, _LOOKED_AT))) if one.start != start)
    return [one for one in known if is_comparable(now, one)][:MOST]


def _may_be(one: Listed, now: Known) -> bool:
    """What the list tells already."""
    models = ", ".join(dict.fromkeys(now.what.gpus)) or None
    return one.world_size == now.what.world_size and one.gpu == models


def _as_known(one: RecordReading, gpus: tuple[str | None, ...]) -> Known:
    shown = one.told_run or one.slot.identity.run
    told = parse_journal(one.folder)
    return Known(
        run=one.owner.plain(shown) if one.owner else shown,
        owner=one.owner.name if one.owner else None,
        host=one.slot.identity.host or None,
        what=what_of(one.slot.identity, (told,), tuple(name for name in gpus if name)),
        names=frozenset(
            each.compilation.name for each in told.compilations if each.compilation.name
        ),
    )
