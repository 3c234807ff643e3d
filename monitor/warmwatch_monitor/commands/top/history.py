"""What the plots of ``top`` show: columns of the last hour, and the time left of a count."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from warmwatch_monitor.last_hour.ring import SECONDS

Answer = Mapping[str, Any]
Whose = tuple[str, int]  # run and rank
Point = tuple[float, float]  # when, in seconds since the epoch, and the value
Span = tuple[float, float]  # begin and end
Columns = Mapping[str, Sequence[Any]]
K = TypeVar("K")

_WHOLE = 900.0  # seconds until all columns are requested again, in fewer values than have come
_EACH = 10  # seconds: requests for the same number of them share the daemon's answer
_OVERLAP = 3.0  # seconds that are requested again: the newest one was not over
_RANK, _GPU = ("steps", "step_seconds", "compiles"), ("power_watts", "utilization_ratio")
_LEAST_DONE, _LEAST_SECONDS = 3, 2.0  # before that a rate is a guess


class _Counted(NamedTuple):
    """A count in progress: time and value when first seen, and now."""

    what: tuple[str, int]
    began: Point
    now: Point


class History:
    """The columns of ``/history``, as far as they were requested, and the counts of answers."""

    def __init__(self) -> None:
        self._at: list[float] = []
        self._ranks: Mapping[Whose, Columns] = {}
        self._gpus: Mapping[str, Columns] = {}
        self._counted: dict[Whose, _Counted] = {}
        self._answered = self._whole_at = -math.inf

    def add(self, answer: Answer, at: float) -> None:
        """Add the counts of ``answer``, made at ``at``; ignored if it is not newer."""
        if at > self._answered:
            self._answered = at
            self._counted = dict(_counted(answer, at, self._counted))

    def missing(self, now: float) -> int:
        """How many seconds before ``now`` to request: all at first, and now and then."""
        seconds = now - self._at[-1] + _OVERLAP if self._at else math.inf
        if 0 < seconds < SECONDS - _EACH and 0 <= now - self._whole_at < _WHOLE:
            return math.ceil(seconds / _EACH) * _EACH
        self._whole_at = now
        return SECONDS

    def join(self, past: Answer) -> None:
        """Let the columns ``past`` replace what it has of their time."""
        at = past["at"]
        if not at:
            return
        until = bisect_left(self._at, at[0])
        kept = slice(bisect_left(self._at, at[-1] - SECONDS, hi=until), until)
        times = [*self._at[kept], *at]
        ranks = {
            (rank["run"], rank["rank"]): {**rank, "compiles": _active(rank["phases"], at)}
            for rank in past["ranks"]
        }
        gpus = {gpu["uuid"]: gpu for gpu in past["gpus"]}
        self._ranks, self._gpus, self._at = (
            dict(_joined(self._ranks, ranks, _RANK, kept, len(at))),
            dict(_joined(self._gpus, gpus, _GPU, kept, len(at))),
            times,
        )

    def steps(self, whose: Whose, since: float = -math.inf) -> list[Point]:
        """Mean lengths in seconds of steps without compilation, as on the page."""
        points: list[Point] = []
        before, compiled_at = None, -math.inf
        for at, count, length, compiles in self._known(whose, since):
            if before is not None and count < before:  # another run of the same name
                points, compiled_at = [], -math.inf
            compiled_at = at if compiles else compiled_at
            if before is not None and count > before and length is not None:
                # a step often ends a second after its compilation
                points += [(at, length)] if at - length >= compiled_at else []
            before = count
        return points

    def compiling(self, whose: Whose, since: float = -math.inf) -> list[Span]:
        """Intervals of compile activity of the newest run of this name."""
        spans: list[Span] = []
        before, began = None, -math.inf
        for at, count, _, compiles in self._known(whose, since):
            if before is not None and count < before:
                spans = []
            if compiles and spans and spans[-1][1] == began:
                spans[-1] = spans[-1][0], at
            elif compiles:
                spans.append((at if before is None else began, at))
            before, began = count, at
        return spans

    def _known(self, whose: Whose, since: float) -> Iterator[tuple[float, Any, Any, Any]]:
        """The values of the seconds in which the rank was seen."""
        rank, first = self._ranks.get(whose), bisect_left(self._at, since)
        if rank is not None:
            columns = (rank[name][first:] for name in _RANK)
            values = zip(self._at[first:], *columns, strict=True)
            yield from (value for value in values if value[1] is not None)

    def watts(self, uuid: str) -> list[Point]:
        """Power of a GPU."""
        return self._of_gpu(uuid, "power_watts")

    def activity(self, uuid: str) -> list[Point]:
        """Utilization of a GPU, 0 to 1."""
        return self._of_gpu(uuid, "utilization_ratio")

    def _of_gpu(self, uuid: str, name: str) -> list[Point]:
        values = self._gpus.get(uuid, {}).get(name, ())
        pairs = zip(self._at, values, strict=False)
        return [(at, value) for at, value in pairs if value is not None]

    def seconds_left(self, whose: Whose) -> float | None:
        """Time left for the current count at its rate so far; ``None`` if not known."""
        counted = self._counted.get(whose)
        if counted is None:
            return None
        took, done = counted.now[0] - counted.began[0], counted.now[1] - counted.began[1]
        if done < _LEAST_DONE or took < _LEAST_SECONDS:
            return None
        return (counted.what[1] - counted.now[1]) * took / done


def _joined(
    before: Mapping[K, Columns],
    after: Mapping[K, Columns],
    names: Sequence[str],
    kept: slice,
    count: int,
) -> Iterator[tuple[K, dict[str, Sequence[Any]]]]:
    """The ``kept`` part of the columns before, and the ``count`` values after; none without any."""
    earlier, later = [None] * kept.stop, [None] * count
    for key in {**before, **after}:
        columns: dict[str, Sequence[Any]] = {
            name: [
                *before.get(key, {}).get(name, earlier)[kept],
                *after.get(key, {}).get(name, later),
            ]
            for name in names
        }
        if any(value is not None for column in columns.values() for value in column):
            yield key, columns


def _active(phases: Iterable[Sequence[Any]], at: Iterable[float]) -> list[bool]:
    """Whether it compiled in the time of each value, from the begins of phases."""
    active, name, rest = [], None, deque(phases)
    for moment in at:
        names = []
        while rest and rest[0][0] <= moment:
            names.append(rest.popleft()[1])
        names = names or [name]
        name = names[-1]
        active.append(any(names))
    return active


def _counted(
    answer: Answer, at: float, before: Mapping[Whose, _Counted]
) -> Iterator[tuple[Whose, _Counted]]:
    """The current count of each rank; a continued count preserves its start."""
    for run in answer["runs"]:
        for rank in run["ranks"]:
            progress = rank["compile"].get("progress")
            if not progress:
                continue
            whose, what = (run["run"], rank["rank"]), (progress["of"], progress["total"])
            now, counted = (at, float(progress["done"])), before.get((run["run"], rank["rank"]))
            goes_on = counted is not None and counted.what == what and now[1] >= counted.now[1]
            yield whose, _Counted(what, counted.began if counted and goes_on else now, now)
