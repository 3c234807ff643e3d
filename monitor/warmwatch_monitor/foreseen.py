"""Runs, with how long each rank that compiles may take yet. Pure.

A precedent is an earlier start of the run that is remembered, or another rank which has come to the
end of what this one is at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from warmwatch.record import CompileCounts
from warmwatch_monitor.estimate import Now, estimate
from warmwatch_monitor.model import (
    Compilation,
    Done,
    Precedent,
    RankView,
    RecordReading,
    Remembered,
    RunView,
)
from warmwatch_monitor.sources.journal import KEPT

_NOTHING = Remembered()
_NONE: Mapping[str, Remembered] = MappingProxyType({})


def with_estimates(
    runs: Iterable[RunView], now_ns: int, remembered: Mapping[str, Remembered] = _NONE
) -> tuple[RunView, ...]:
    """``remembered``: by the folder of a rank's record."""
    return tuple(_run(run, now_ns, remembered) for run in runs)


def _run(run: RunView, now_ns: int, remembered: Mapping[str, Remembered]) -> RunView:
    if not any(view.judgement.compiling for view in run.ranks):
        return run
    ranks = [_rank(view, run.ranks, now_ns, remembered) for view in run.ranks]
    return replace(run, ranks=tuple(ranks))


def _rank(
    view: RankView,
    ranks: Sequence[RankView],
    now_ns: int,
    remembered: Mapping[str, Remembered],
) -> RankView:
    if not view.judgement.compiling:
        return view
    known = remembered.get(view.record.folder, _NOTHING).precedents
    peers = [] if view.record.slot.compile.warmups else list(_peers(view, ranks))
    return replace(view, estimate=estimate(now_of(view, now_ns), (*peers, *known)))


def now_of(view: RankView, now_ns: int) -> Now:
    """What is known of a rank that compiles, at ``now_ns``."""
    record, counts = view.record, view.record.slot.compile
    began_ns = counts.episode_began_ns or counts.active_since_ns
    ended_ns = max((one.at_ns for one in record.compilations), default=0)
    compiled = tuple(done(one) for one in record.compilations)
    return Now(
        seconds=None if counts.warmups else (now_ns - began_ns) / 1e9,
        activity_seconds=(now_ns - max(counts.active_since_ns, ended_ns)) / 1e9,
        phase_seconds=view.figures.compile.phase_seconds,
        compiled=compiled if len(compiled) < KEPT else None,
        underway=_underway(view),
        own=compiled,
    )


def done(one: Compilation) -> Done:
    """A compilation that a journal tells of."""
    return Done(kind=one.kind, name=one.name, code=one.code, cache=one.cache, seconds=one.seconds)


def _underway(view: RankView) -> Done:
    what, began = view.figures.log.underway, view.record.beginning
    if what is None:
        return Done()
    if what.backward:
        return Done(kind="backward")
    since = began is not None and began.at_ns >= view.record.slot.compile.active_since_ns
    code = began.code if began is not None and since and began.name == what.name else None
    return Done(kind=what.kind, name=what.name, code=code)


def _peers(view: RankView, ranks: Iterable[RankView]) -> Iterable[Precedent]:
    """The ranks that have done what ``view`` is at, as far as they have come themselves."""
    begun = view.record.slot.compile.begun
    for other in ranks:
        counts = other.record.slot.compile
        if not counts.active_since_ns and counts.ended >= begun and counts.warmups < 2:
            yield _precedent(other, counts)


def _precedent(view: RankView, counts: CompileCounts) -> Precedent:
    reading: RecordReading = view.record
    known = len(reading.compilations) < KEPT
    return Precedent(
        seconds=(counts.last_end_ns - counts.first_begin_ns) / 1e9,
        phase_seconds=view.figures.compile.phase_seconds,
        compiled=tuple(done(one) for one in reading.compilations) if known else None,
        of_rank=True,
    )
