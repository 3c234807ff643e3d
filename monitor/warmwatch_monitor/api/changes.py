"""Diff of two Snapshots, as events. Pure.

A rank is compared with itself: a process that has taken its place begins anew, with ``attached``.
What began and ended between two looks is told by what it left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from msgspec.structs import asdict

from warmwatch.shared.states import ENDED, State
from warmwatch_monitor.model import RankView, RunView, Snapshot, all_warm, any_compiling
from warmwatch_monitor.status.compile import compilation, underway
from warmwatch_monitor.status.rank import ending, warmup_span
from warmwatch_monitor.status.words.sentence import run_sentence

# in the order in which those of one look are told
KINDS = (
    "attached",
    "state",
    "condition",
    "compile_begin",
    "phase",
    "compilation",
    "compile_end",
    "reopened",
    "warm",
    "ended",
    "run",
    "gone",
    "source",
)
_UNWARMED = frozenset({State.STARTING, State.COMPILING, State.WARMING, State.RECOMPILING})
Data = dict[str, Any]


class Change(NamedTuple):
    """One event: its kind, of KINDS; the run's name and owner, if of one; and what is told."""

    kind: str
    data: Data
    run: str | None = None
    names: frozenset[str] = frozenset()


def tells_of_runs(snapshot: Snapshot) -> bool:
    """Whether a run that is not in it is not there: the records were read for it."""
    return any(health.source == "records" and health.up for health in snapshot.sources)


def changes(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    """All that became otherwise with runs. Both of them tell of all runs."""
    old = {view.run: view for view in before.runs}
    for view in now.runs:
        yield from _of_run(old.pop(view.run, None), view, now)
    for view in old.values():
        yield Change("gone", {"at": now.epoch, "run": view.run}, view.run, names(view, before))


def source_changes(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    """Sources that failed, or work again."""
    old = {health.source: health.up for health in before.sources}
    for health in now.sources:
        if old.get(health.source) != health.up:
            told = {"source": health.source, "up": health.up, "error": health.error}
            yield Change("source", {"at": now.epoch, **told})


def names(view: RunView, snapshot: Snapshot) -> frozenset[str]:
    """By what ``?run=`` may name it: as it is shown, else as its user calls it."""
    who = view.who
    called = {f"{who.name}@{who.owner}", who.name} - {one.run for one in snapshot.runs}
    return frozenset({view.run, *(name for name in called if name)})


class _Telling:
    """What every event of a run says; the sentence is made where there is any."""

    def __init__(self, view: RunView, snapshot: Snapshot) -> None:
        self._view, self._snapshot = view, snapshot

    @cached_property
    def _common(self) -> tuple[Data, str, frozenset[str]]:
        view = self._view
        said = {"at": self._snapshot.epoch, "run": view.run, "summary": run_sentence(view)}
        return said, view.run, names(view, self._snapshot)

    def __call__(self, kind: str, rank: RankView | None, **told: Any) -> Change:
        common, run, called = self._common
        of = {} if rank is None else {"rank": rank.rank}
        return Change(kind, {**common, **of, **told}, run, called)


def _of_run(before: RunView | None, now: RunView, snapshot: Snapshot) -> Iterator[Change]:
    tell = _Telling(now, snapshot)
    old = {view.rank: view for view in before.ranks} if before else {}
    for view in now.ranks:
        yield from _of_rank(old.get(view.rank), view, tell)
    was = None if before is None else (before.state, any_compiling([before]), all_warm([before]))
    compiling, warm = any_compiling([now]), all_warm([now])
    if was != (now.state, compiling, warm):
        state, earlier = now.state.value, before.state.value if before else None
        yield tell("run", None, state=state, before=earlier, compiling=compiling, warm=warm)


def _of_rank(before: RankView | None, now: RankView, tell: _Telling) -> Iterator[Change]:
    if before is None or _start(before) != _start(now):
        who = now.figures.who
        yield tell("attached", now, attached_at=who.attached_at, attempt=who.attempt)
        before = None
    state, earlier = now.judgement.state, before.judgement.state if before else None
    if state is not earlier:
        since, was = now.figures.progress.state_since, earlier.value if earlier else None
        yield tell("state", now, state=state.value, before=was, since=since)
    holds, held = now.judgement.conditions, before.judgement.conditions if before else ()
    if holds != held:
        yield tell("condition", now, conditions=list(holds), before=list(held))
    yield from _of_compiler(before, now, tell)
    yield from _of_warmth(before, now, tell)
    if state in ENDED and earlier not in ENDED:
        yield tell("ended", now, end=ending(now, None))


def _start(view: RankView) -> tuple[float | None, int | None]:
    return view.figures.who.attached_at, view.figures.who.attempt


def _of_compiler(before: RankView | None, now: RankView, tell: _Telling) -> Iterator[Change]:
    living, figures = now.living, now.figures
    opened = figures.compile.open if living else None
    was = before.figures.compile if before else None
    earlier = was.open if was and before and before.living else None
    same = opened is not None and earlier is not None and opened.began_at == earlier.began_at
    spent = figures.compile.seconds - (was.seconds if was else 0.0)
    # one that is over: seen in progress, or by the time that it left behind
    ended = (earlier is not None and not same) or (not opened and spent > 0)
    late = bool(figures.warmups.count)
    what = underway(figures.log.underway, after_warm=late)
    if ended and earlier is None:
        yield tell("compile_begin", now, began_at=None, phase=None, underway=None)
    yield from _compilations(before, now, tell)
    if ended:
        yield tell("compile_end", now, compile_seconds=figures.compile.seconds)
    if opened and not same:
        phase, began_at = opened.phase, opened.began_at
        yield tell("compile_begin", now, began_at=began_at, phase=phase, underway=what)
    elif opened and before:
        doing = (earlier and earlier.phase, underway(before.figures.log.underway, after_warm=late))
        if doing != (opened.phase, what):
            yield tell("phase", now, phase=opened.phase, underway=what)


def _compilations(before: RankView | None, now: RankView, tell: _Telling) -> Iterator[Change]:
    """Those that the journal tells of since: it keeps the last ones, in order."""
    known = before.figures.log.compilations if before else ()
    last = known[-1].at_ns if known else 0
    there = {(one.at_ns, one.id, one.kind) for one in known}
    for one in now.figures.log.compilations:
        if one.at_ns >= last and (one.at_ns, one.id, one.kind) not in there:
            yield tell("compilation", now, compilation=compilation(one))


def _of_warmth(before: RankView | None, now: RankView, tell: _Telling) -> Iterator[Change]:
    warm, was_warm = now.judgement.warm, before is not None and before.judgement.warm
    warmups, earlier = now.figures.warmups, before.figures.warmups if before else None
    again = was_warm and warm and (warmups.count or 0) > ((earlier and earlier.count) or 0)
    unwarmed = now.judgement.state in _UNWARMED
    stalled = before is not None and before.judgement.state is State.STALLED
    back = stalled and now.judgement.state is State.RECOMPILING
    if again or (unwarmed and (was_warm or back)):
        by = now.figures.log.reopened_by
        yield tell("reopened", now, by=compilation(by) if by else None)
    if warm and (again or not was_warm):
        yield tell("warm", now, **asdict(warmup_span(warmups.latest)))
