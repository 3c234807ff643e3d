"""What the plots of ``top`` show: samples since it started, and the daemon's history. Bounded."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Answer = Mapping[str, Any]
Whose = tuple[str, int]  # run and rank
Point = tuple[float, float]  # when, in seconds since the epoch, and the value
Span = tuple[float, float]  # begin and end

_MOST_FRAMES = 3600
_MOST_CELLS = 120_000  # one per rank and GPU of each frame, about 200 bytes each
_LEAST_DONE, _LEAST_SECONDS = 3, 2.0  # before that a rate is a guess


class RankThen(NamedTuple):
    """A rank at one moment: its step count, its mean step of the last second and compile time."""

    steps: int
    step: float | None
    compiled: float
    compiling: bool

    def compiles_since(self, before: RankThen | None) -> bool:
        """Whether it compiles now, or has compiled since ``before``."""
        return self.compiling or (before is not None and self.compiled > before.compiled)

    def is_another_run(self, before: RankThen | None) -> bool:
        """Whether a new run of the same name replaced that of ``before``."""
        return before is not None and self.steps < before.steps


class Frame(NamedTuple):
    """One moment. A GPU has its power in watts and its utilization."""

    at: float
    ranks: dict[Whose, RankThen]
    gpus: dict[str, tuple[float | None, float | None]]


class _Counted(NamedTuple):
    """A count in progress: time and value when first seen, and now."""

    what: tuple[str, int]
    began: Point
    now: Point


class History:
    """Measurements of ranks and GPUs from the answers added to it, in the order of time."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque(maxlen=_MOST_FRAMES)
        self._cells = 0
        self._counted: dict[Whose, _Counted] = {}

    def add(self, answer: Answer, at: float) -> None:
        """Add ``answer``, made at ``at``; ignored if it is not newer than the last one."""
        if self._frames and at <= self._frames[-1].at:
            return
        if len(self._frames) == _MOST_FRAMES:
            self._forget()
        frame = Frame(at, _ranks(answer), _gpus(answer))
        self._frames.append(frame)
        self._cells += _cells(frame)
        while self._cells > _MOST_CELLS and len(self._frames) > 1:
            self._forget()
        self._counted = dict(_counted(answer, at, self._counted))

    def precede(self, past: Iterable[Frame]) -> None:
        """Insert ``past`` before the added frames, as far as the limit allows."""
        own = list(self._frames)
        before = [frame for frame in past if not own or frame.at < own[0].at]
        self._frames = deque([*before, *own], maxlen=_MOST_FRAMES)
        self._cells = sum(map(_cells, self._frames))
        while self._cells > _MOST_CELLS and len(self._frames) > 1:
            self._forget()

    def _forget(self) -> None:
        self._cells -= _cells(self._frames.popleft())

    def steps(self, whose: Whose, since: float = -math.inf) -> list[Point]:
        """Mean lengths in seconds of steps without compilation, as on the page."""
        points: list[Point] = []
        before: RankThen | None = None
        compiled_at = -math.inf
        for frame in self._frames:
            rank = None if frame.at < since else frame.ranks.get(whose)
            if rank is None:
                continue
            if rank.is_another_run(before):
                points, compiled_at = [], -math.inf
            if rank.compiles_since(before):
                compiled_at = frame.at
            if before is not None and rank.steps > before.steps and rank.step is not None:
                began = frame.at - rank.step  # a step often ends a frame after its compilation
                points += [(frame.at, rank.step)] if began >= compiled_at else []
            before = rank
        return points

    def compiling(self, whose: Whose, since: float = -math.inf) -> list[Span]:
        """Intervals of compile activity."""
        spans: list[Span] = []
        before: RankThen | None = None
        began = 0.0
        for frame in self._frames:
            rank = None if frame.at < since else frame.ranks.get(whose)
            if rank is None:
                before = None
                continue
            if rank.is_another_run(before):
                spans, before = [], None
            began = began if before else frame.at
            if rank.compiles_since(before):
                if spans and spans[-1][1] == began:
                    spans[-1] = (spans[-1][0], frame.at)
                else:
                    spans.append((began, frame.at))
            before, began = rank, frame.at
        return spans

    def watts(self, uuid: str) -> list[Point]:
        """Power of a GPU."""
        return self._of_gpu(uuid, 0)

    def activity(self, uuid: str) -> list[Point]:
        """Utilization of a GPU, 0 to 1."""
        return self._of_gpu(uuid, 1)

    def _of_gpu(self, uuid: str, which: int) -> list[Point]:
        return [
            (frame.at, value)
            for frame in self._frames
            if (value := frame.gpus.get(uuid, (None, None))[which]) is not None
        ]

    def seconds_left(self, whose: Whose) -> float | None:
        """Time left for the current count at its rate so far; ``None`` if not known."""
        counted = self._counted.get(whose)
        if counted is None:
            return None
        took, done = counted.now[0] - counted.began[0], counted.now[1] - counted.began[1]
        if done < _LEAST_DONE or took < _LEAST_SECONDS:
            return None
        return (counted.what[1] - counted.now[1]) * took / done


def _cells(frame: Frame) -> int:
    return len(frame.ranks) + len(frame.gpus)


def _ranks(answer: Answer) -> dict[Whose, RankThen]:
    return {
        (run["run"], rank["rank"]): RankThen(
            steps=rank["steps"],
            step=rank["step_seconds"].get("last_second"),
            compiled=rank["compile"]["seconds"],
            compiling=rank["compile"]["phase"] is not None,
        )
        for run in answer["runs"]
        for rank in run["ranks"]
    }


def _gpus(answer: Answer) -> dict[str, tuple[float | None, float | None]]:
    return {
        gpu["uuid"]: (gpu["power_watts"], gpu["utilization_ratio"])
        for gpu in answer.get("gpus", ())
    }


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


def frames(history: Mapping[str, Any]) -> Iterator[Frame]:
    """One frame for each moment of ``history``, with the ranks and GPUs known then."""
    for place, at in enumerate(history["at"]):
        ranks = {
            (rank["run"], rank["rank"]): _rank(rank, place)
            for rank in history["ranks"]
            if rank["steps"][place] is not None
        }
        gpus = {
            value["uuid"]: (value["power_watts"][place], value["utilization_ratio"][place])
            for value in history["gpus"]
        }
        yield Frame(at, ranks, gpus)


def _rank(values: Mapping[str, Any], place: int) -> RankThen:
    """A rank of the history. Its total compile time is not known: infinite, so it never grows."""
    return RankThen(
        steps=values["steps"][place],
        step=values["step_seconds"][place],
        compiled=math.inf,
        compiling=bool(values["compile_seconds"][place]),
    )
