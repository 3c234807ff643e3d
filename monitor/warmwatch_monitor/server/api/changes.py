"""Diff of two Snapshots, as events; the last ones, numbered, as bytes, in bounded memory.

A rank is compared with itself: a process that replaces it begins with ``attached``. Activity that
began and ended between two polls is inferred from its traces.

The publisher's thread adds each Snapshot; the event loop reads.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from warmwatch.shared.states import ENDED, State
from warmwatch_monitor.figures.training import WarmupSpan
from warmwatch_monitor.model.snapshot import RankView, RunView, Snapshot, all_warm, any_compiling
from warmwatch_monitor.server.api.cached import json_body
from warmwatch_monitor.status.run import compilation, ending, underway
from warmwatch_monitor.status.schema.events import (
    AttachedEvent,
    CompilationEvent,
    CompileBeginEvent,
    CompileEndEvent,
    ConditionEvent,
    EndedEvent,
    Event,
    GoneEvent,
    PhaseEvent,
    ReopenedEvent,
    RunEvent,
    SourceEvent,
    StateEvent,
    WarmEvent,
)
from warmwatch_monitor.status.words.run import run_answer

_UNWARMED = frozenset({State.STARTING, State.COMPILING, State.WARMING, State.RECOMPILING})


class Change(NamedTuple):
    """One event. ``names``: possible ``?run=`` values for its run; ``None`` without a run."""

    event: Event
    names: frozenset[str] | None = None


def has_runs(snapshot: Snapshot) -> bool:
    """Whether the records were read for it, so that a missing run is gone."""
    return any(health.source == "records" and health.up for health in snapshot.sources)


def changes(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    """All changes of runs. Both Snapshots have all runs."""
    old = {view.run: view for view in before.runs}
    changed = [
        (run, view) for view in now.runs if not _is_unchanged(run := old.pop(view.run, None), view)
    ]
    if changed:
        shown = frozenset(view.run for view in now.runs)
        for run, view in changed:
            yield from _of_run(run, view, now.epoch, shown)
    if old:
        shown = frozenset(view.run for view in before.runs)
        for view in old.values():
            yield Change(GoneEvent(at=now.epoch, run=view.run), _names(view, shown))


def _is_unchanged(before: RunView | None, now: RunView) -> bool:
    """Whether nothing happened to any of its ranks."""
    if before is None or len(before.ranks) != len(now.ranks):
        return False
    return all(map(_is_unchanged_rank, before.ranks, now.ranks))


def _is_unchanged_rank(before: RankView, now: RankView) -> bool:
    """Whether it has the same state, conditions and figures, on which all its events depend.

    The pipeline keeps the figures of a block or journal that did not change. Regular steps change
    none of them.
    """
    judgement, earlier = now.judgement, before.judgement
    if judgement.state is not earlier.state or judgement.conditions != earlier.conditions:
        return False
    new, old = now.figures, before.figures
    return (
        new.compile is old.compile
        and new.log.compilations is old.log.compilations
        and new.log.underway is old.log.underway
        and new.warmups is old.warmups
        and new.who is old.who
    )


def source_changes(before: Snapshot, now: Snapshot) -> Iterator[SourceEvent]:
    """Sources that failed, or work again."""
    old = {health.source: health.up for health in before.sources}
    for health in now.sources:
        if old.get(health.source) != health.up:
            up, error = health.up, health.error
            yield SourceEvent(at=now.epoch, source=health.source, up=up, error=error)


def _names(view: RunView, shown: frozenset[str]) -> frozenset[str]:
    """The possible ``?run=`` values: the shown name, and the name that its user gave.

    ``shown``: the names of all runs of the Snapshot.
    """
    who = view.who
    called = {f"{who.name}@{who.owner}", who.name} - shown
    return frozenset({view.run, *(name for name in called if name)})


class _Events:
    """Makes the events of a run. Their sentence is made once, if there is any event."""

    def __init__(self, view: RunView, at: float, shown: frozenset[str]) -> None:
        self._view, self._at, self._shown = view, at, shown

    @cached_property
    def _common(self) -> tuple[dict[str, Any], frozenset[str]]:
        view = self._view
        common = {"at": self._at, "run": view.run, "summary": run_answer(view).summary}
        return common, _names(view, self._shown)

    def __call__(self, type: type[Event], rank: RankView | None, **data: Any) -> Change:
        common, called = self._common
        counts = {} if rank is None else {"rank": rank.rank}
        return Change(type(**common, **counts, **data), called)


def _of_run(
    before: RunView | None, now: RunView, at: float, shown: frozenset[str]
) -> Iterator[Change]:
    event = _Events(now, at, shown)
    old = {view.rank: view for view in before.ranks} if before else {}
    for view in now.ranks:
        yield from _of_rank(old.get(view.rank), view, event)
    was = None if before is None else (before.state, any_compiling([before]), all_warm([before]))
    compiling, warm = any_compiling([now]), all_warm([now])
    if was != (now.state, compiling, warm):
        earlier = before.state if before else None
        yield event(RunEvent, None, state=now.state, before=earlier, compiling=compiling, warm=warm)


def _of_rank(before: RankView | None, now: RankView, event: _Events) -> Iterator[Change]:
    if before is None or _start(before) != _start(now):
        who = now.figures.who
        yield event(AttachedEvent, now, attached_at=who.attached_at, attempt=who.attempt)
        before = None
    state, earlier = now.judgement.state, before.judgement.state if before else None
    if state is not earlier:
        since = now.figures.progress.state_since
        yield event(StateEvent, now, state=state, before=earlier, since=since)
    holds, held = now.judgement.conditions, before.judgement.conditions if before else ()
    if holds != held:
        yield event(ConditionEvent, now, conditions=list(holds), before=list(held))
    yield from _of_compiler(before, now, event)
    yield from _of_warmth(before, now, event)
    if state in ENDED and earlier not in ENDED:
        yield event(EndedEvent, now, end=ending(now, None))


def _start(view: RankView) -> tuple[float | None, int | None]:
    return view.figures.who.attached_at, view.figures.who.attempt


def _of_compiler(before: RankView | None, now: RankView, event: _Events) -> Iterator[Change]:
    living, figures = now.living, now.figures
    opened = figures.compile.open if living else None
    was = before.figures.compile if before else None
    earlier = was.open if was and before and before.living else None
    same = opened is not None and earlier is not None and opened.began_at == earlier.began_at
    spent = figures.compile.seconds - (was.seconds if was else 0.0)
    # an ended one: it was seen in progress, or shows in its total time
    ended = (earlier is not None and not same) or (not opened and spent > 0)
    what = underway(figures)
    if ended and earlier is None:
        yield event(CompileBeginEvent, now, began_at=None, phase=None, underway=None)
    yield from _compilations(before, now, event)
    if ended:
        yield event(CompileEndEvent, now, compile_seconds=figures.compile.seconds)
    if opened and not same:
        phase, began_at = opened.phase, opened.began_at
        yield event(CompileBeginEvent, now, began_at=began_at, phase=phase, underway=what)
    elif opened and before:
        doing = (earlier and earlier.phase, underway(before.figures))
        if doing != (opened.phase, what):
            yield event(PhaseEvent, now, phase=opened.phase, underway=what)


def _compilations(before: RankView | None, now: RankView, event: _Events) -> Iterator[Change]:
    """The new ones in the journal, which has the last ones in order."""
    compilations = before.figures.log.compilations if before else ()
    last = compilations[-1].at_ns if compilations else 0
    there = {(value.at_ns, value.id, value.kind) for value in compilations}
    for item in now.figures.log.compilations:
        if item.at_ns >= last and (item.at_ns, item.id, item.kind) not in there:
            yield event(CompilationEvent, now, compilation=compilation(item))


def _of_warmth(before: RankView | None, now: RankView, event: _Events) -> Iterator[Change]:
    warm, was_warm = now.judgement.warm, before is not None and before.judgement.warm
    warmups, earlier = now.figures.warmups, before.figures.warmups if before else None
    again = was_warm and warm and (warmups.count or 0) > ((earlier and earlier.count) or 0)
    unwarmed = now.judgement.state in _UNWARMED
    stalled = before is not None and before.judgement.state is State.STALLED
    back = stalled and now.judgement.state is State.RECOMPILING
    if again or (unwarmed and (was_warm or back)):
        by = now.figures.log.reopened_by
        yield event(ReopenedEvent, now, by=compilation(by) if by else None)
    if warm and (again or not was_warm):
        span = warmups.latest or WarmupSpan()
        yield event(WarmEvent, now, ended_at=span.ended_at, seconds=span.seconds, steps=span.steps)


MOST = 8192
MOST_BYTES = 8 << 20


class ForgottenError(Exception):
    """The requested events have left the ring, or were never in it; the message says which."""


class Logged(NamedTuple):
    """One event: its number and kind, the possible ``?run=`` values (``None``: no run), its
    bytes."""

    number: int
    kind: str
    names: frozenset[str] | None
    content: bytes


class Wanted(NamedTuple):
    """A client's filter: one run and some kinds; ``None`` means all."""

    run: str | None = None
    kinds: frozenset[str] = frozenset()

    def has(self, event: Logged) -> bool:
        if self.kinds and event.kind not in self.kinds:
            return False
        return self.run is None or event.names is None or self.run in event.names


class Recent:
    """A ring of events. ``life`` separates this daemon's numbers from those of other daemons."""

    def __init__(self) -> None:
        self.life = secrets.token_hex(4)
        self._events: deque[Logged] = deque()
        self._bytes, self._lock = 0, threading.Lock()
        self.changes: list[Change] = []  # of the last Snapshot
        self._before: Snapshot | None = None
        self._before_of_runs: Snapshot | None = None
        self.number = 0  # of the newest

    def take(self, snapshot: Snapshot) -> None:
        """Add the changes since the last Snapshot. A run that cannot be read is not gone."""
        self.changes = result = list[Change]()
        if self._before is not None:
            result += (Change(event) for event in source_changes(self._before, snapshot))
        self._before = snapshot
        if has_runs(snapshot):
            if self._before_of_runs is not None:
                result += changes(self._before_of_runs, snapshot)
            self._before_of_runs = snapshot
        for change in result:
            self._add(change)

    def after(
        self, number: int, wanted: Wanted, most_bytes: int = 1 << 16
    ) -> tuple[int, list[bytes]]:
        """The ``wanted`` events after ``number``, and the number up to which they go.

        Raises:
            ForgottenError: some of them have left the ring.
        """
        with self._lock:
            oldest = self._events[0].number if self._events else self.number + 1
            if number < oldest - 1:
                raise ForgottenError("too_old")
            result, size = [], 0
            skipped = number - (oldest - 1)
            for at in range(skipped, len(self._events)):
                event = self._events[at]
                number = event.number
                if wanted.has(event):
                    result.append(event.content)
                    size += len(event.content)
                    if size >= most_bytes:
                        break
            return number, result

    def id_of(self, number: int) -> str:
        return f"{self.life}-{number}"

    def number_of(self, id: str) -> int:
        """The number in a client's last id.

        Raises:
            ForgottenError: it belongs to another daemon's life, or was never assigned.
        """
        life, _, number = id.rpartition("-")
        if life != self.life:
            raise ForgottenError("another_daemon")
        count = int(number) if number.isascii() and number.isdecimal() and len(number) < 16 else -1
        if not 0 <= count <= self.number:
            raise ForgottenError("another_daemon")
        return count

    def _add(self, change: Change) -> None:
        number = self.number + 1
        kind = change.event.kind
        content = framed(kind, json_body(change.event).plain, self.id_of(number))
        with self._lock:
            self._events.append(Logged(number, kind, change.names, content))
            self._bytes += len(content)
            self.number = number
            while len(self._events) > MOST or self._bytes > MOST_BYTES:
                self._bytes -= len(self._events.popleft().content)


def framed(kind: str, data: bytes, id: str | None = None) -> bytes:
    """One server-sent event; ``data`` is JSON without line breaks."""
    named = f"id: {id}\n" if id is not None else ""
    return f"event: {kind}\n{named}data: ".encode() + data + b"\n\n"
