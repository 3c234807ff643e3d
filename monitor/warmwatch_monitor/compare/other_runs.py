"""Other runs in the history: starts of the same program, and runs beside a compared one.

Other starts show the noise between runs. Neighbours ran on the same host at the same time, so their
load is within its times; programs without a record are not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from warmwatch_monitor.compare.comparability import STEADY, incomparable
from warmwatch_monitor.compare.comparison import Neighbour, mode_of, step_of
from warmwatch_monitor.compare.noise import Repeats
from warmwatch_monitor.errors import StoreError
from warmwatch_monitor.history.comparability import called
from warmwatch_monitor.history.listing import Listed, RunQuery
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.output.console import note, plain
from warmwatch_monitor.report.assembly import report, slowest_of
from warmwatch_monitor.settings import load_history_settings

# starts of its name that are listed, loaded and used: a summary of many ranks is large
_LISTED, _LOADED, MOST_STARTS = 40, 10, 5


def repeats(compared: Sequence[RunSummary]) -> tuple[Repeats, ...]:
    """Each compared run with other starts of the same program; none without a history."""
    settings = load_history_settings(os.environ)
    if settings.directory is None:
        return ()
    try:
        found = _all(Store(settings), compared)
        return tuple(_repeats(one) for one in found if len(one) > 1)
    except StoreError as error:
        note(f"warmwatch: the noise between runs is not known: {plain(str(error))}")
        return ()


def _all(store: Store, compared: Sequence[RunSummary]) -> Iterator[list[RunSummary]]:
    """Each compared run with other starts of its program.

    A start is used once. No compared run is a repeat of another, because their difference is what
    is measured.
    """
    used = {one.id for one in compared}
    for one in compared:
        if step_of(one) is None:
            continue
        listed = store.readable(RunQuery(called=called(one), limit=_LISTED))
        likely = (each.id for each in listed if each.id not in used and _may_be(one, each))
        others = store.summaries(islice(likely, _LOADED))
        same = list(islice((each for each in others if is_same_program(one, each)), MOST_STARTS))
        used.update(each.id for each in same)
        yield [one, *same]


def _may_be(one: RunSummary, other: Listed) -> bool:
    """Whether it can be the same program, from its list entry."""
    mine = (one.owner, one.host, one.what.world_size, one.what.torch, one.what.commit)
    return mine == (other.owner, other.host, other.world_size, other.torch, other.commit)


def is_same_program(one: RunSummary, other: RunSummary) -> bool:
    """Whether both ran one program on one host in one mode, as far as recorded.

    Arguments are not recorded; the number of operations of a step may show another batch.
    """
    if step_of(other) is None or (called(one), one.owner, one.host) != (
        called(other),
        other.owner,
        other.host,
    ):
        return False
    mine, theirs = report(one), report(other)
    if mode_of(mine) != mode_of(theirs):
        return False
    differing = incomparable((one, other), (mine, theirs))
    work = {_operations(one), _operations(other)} - {None}
    return len(work) < 2 and not any(STEADY in each.rows for each in differing)


def _operations(summary: RunSummary) -> float | None:
    worth = slowest_of(summary).answer["worth"] or {}
    operations: float | None = worth.get("flops_per_step")
    return operations


def _repeats(starts: Sequence[RunSummary]) -> Repeats:
    steps = {one.id: step for one in starts if (step := step_of(one))}
    return Repeats(program=starts[0].run, runs=tuple(steps), seconds=tuple(steps.values()))


_MOST_BESIDE = 1_000  # neighbours of a run; more than that many are not looked at
_LEAST_SHARE = 0.05  # of its time: a shorter neighbour changes no median


def neighbours(compared: Sequence[RunSummary]) -> Mapping[str, tuple[Neighbour, ...]]:
    """By the id of each compared run, the longest at the same time first; empty without a history.

    A history that cannot be read is reported by ``repeats``, which reads it too.
    """
    settings = load_history_settings(os.environ)
    found: dict[str, tuple[Neighbour, ...]] = {}
    if settings.directory is not None:
        with suppress(StoreError):
            store = Store(settings)
            found = {one.id: _beside(one, store) for one in compared}
    return found


def _beside(one: RunSummary, store: Store) -> tuple[Neighbour, ...]:
    if one.host is None:
        return ()
    query = RunQuery(since=one.began, until=_end(one), limit=_MOST_BESIDE)
    others = (
        Neighbour(run=each.run, id=each.id, share=share)
        for each in store.readable(query)
        if each.id != one.id
        and each.host == one.host
        and (share := _share(one, each)) >= _LEAST_SHARE
    )
    return tuple(sorted(others, key=lambda each: -each.share))


def _share(one: RunSummary, other: Listed) -> float:
    """The share of the time of ``one`` in which ``other`` ran too."""
    common = min(_end(one), _end(other)) - max(one.began, other.began)
    return max(0.0, common) / max(1e-9, _end(one) - one.began)


def _end(of: RunSummary | Listed) -> float:
    return of.ended if of.ended is not None else of.seen
