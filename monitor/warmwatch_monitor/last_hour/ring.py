"""The last hour in a ring of fixed size: some numbers for each second, rank and GPU.

Seconds are those of the monotonic clock, which is never set; the wall clock's time is stored too.
Unknown values are NaN, or code 0. One thread writes, others read, under one lock.

In the JSON columns of ``/history``, states and phases are listed at their begin, ``[second,
name]``: they rarely change within an hour.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import asdict

from warmwatch.shared.states import State
from warmwatch.shared.values import PHASES
from warmwatch_monitor.figures.compile import Compile
from warmwatch_monitor.figures.training import Pauses
from warmwatch_monitor.model.journal import Compilation
from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.model.snapshot import RankView, Snapshot
from warmwatch_monitor.status.run import compilation

if TYPE_CHECKING:
    from warmwatch.shared.verdict import Judgement


SECONDS = 3600
MOST_RANKS, MOST_GPUS = 256, 64  # 64 KiB a rank, 42 KiB a GPU: 19 MiB at most
_APART = 2  # seconds: between polls that are further apart, nothing is known
# the meaning of the codes; 0 is "unknown", or no phase
STATES: tuple[str | None, ...] = (None, *(state.value for state in State))
PHASE_NAMES: tuple[str | None, ...] = (None, *PHASES)
PAUSE_NAMES: tuple[str | None, ...] = (None, "evaluation", "saving")
_NAMES = {"state": STATES, "phase": PHASE_NAMES, "pause": PAUSE_NAMES}
_PHASE_CODES = {phase: code for code, phase in enumerate(PHASE_NAMES)}
_OTHER = _PHASE_CODES["other"]
_LONG_PAUSE = 0.5  # seconds within one second

# name -> array type; of a rank, and of a GPU
RANK_COLUMNS: Mapping[str, str] = {
    "steps": "d",  # all steps so far
    "step_seconds": "f",  # mean of the clean ones of that second, or of the last ones
    "compile_seconds": "f",  # within that second
    "state": "B",
    "phase": "B",  # with most of compile_seconds
    "pause": "B",  # an evaluation or a save within that second
}
GPU_COLUMNS: Mapping[str, str] = {
    "utilization_ratio": "f",
    "power_watts": "f",
    "memory_used_bytes": "f",
}
# columns of the second of a poll; the others also describe the seconds since the poll before
_OF_A_MOMENT = frozenset({"steps", "step_seconds", "compile_seconds"})
K = TypeVar("K")


class Series:
    """The seconds of one rank or one GPU, in a ring."""

    def __init__(self, kinds: Mapping[str, str], second: int) -> None:
        self.kinds = kinds
        self.columns = {name: array(kind, [_blank(kind)]) * SECONDS for name, kind in kinds.items()}
        self.newest = self._earlier = second  # in which it was last seen, and at the poll before

    def see(self, second: int) -> None:
        """Note that it was seen in this second."""
        self._earlier, self.newest = self.newest, second

    def clear(self, since: int, until: int) -> None:
        """Clear the places of the seconds from ``since`` to before ``until``."""
        for second in range(max(since, until - SECONDS), until):
            for name, column in self.columns.items():
                column[second % SECONDS] = _blank(self.kinds[name])

    def spread(self) -> None:
        """Give the skipped seconds the newest values, unless the polls are further apart."""
        if self._earlier + 1 < self.newest <= self._earlier + _APART:
            for name in self.columns.keys() - _OF_A_MOMENT:
                column = self.columns[name]
                for skipped in range(self._earlier + 1, self.newest):
                    column[skipped % SECONDS] = column[self.newest % SECONDS]


def cut(column: array[float], since: int, until: int) -> array[float]:
    """The part of a ring that has the seconds from ``since`` to before ``until``."""
    begin = since % SECONDS
    end = begin + until - since
    return column[begin:end] if end <= SECONDS else column[begin:] + column[: end - SECONDS]


class Compilations(NamedTuple):
    """The last compilations in a rank's journal, at a poll at ``epoch`` and ``now_ns``."""

    epoch: float
    now_ns: int
    last: Sequence[Compilation]

    def recompiles(self) -> Iterator[tuple[float, Compilation]]:
        """The recompiles, the newest last, with their ends in seconds since the epoch."""
        for item in self.last:
            if item.category and item.reason and item.at_ns <= self.now_ns:
                yield self.epoch - (self.now_ns - item.at_ns) / 1e9, item


class _Spent(NamedTuple):
    """A rank's cumulative times at a poll: the same objects while none of them grows.

    ``second``: that of the poll. ``earlier``: the pauses at the last poll before that second.
    """

    compile: Compile
    pauses: Pauses
    second: int
    earlier: Pauses


class LastHour:
    """The last SECONDS seconds of a limited number of ranks and GPUs; the oldest are evicted."""

    def __init__(self, most_ranks: int = MOST_RANKS) -> None:
        self.lock = threading.Lock()
        self.ranks: dict[tuple[str, int], Series] = {}
        self.gpus: dict[str, Series] = {}
        self.gpu_readings: dict[str, GpuReading] = {}  # the last reading of each of gpus
        self.compilations: dict[tuple[str, int], Compilations] = {}  # of each of ranks
        self.epochs = array("d", [math.nan]) * SECONDS
        self.first = self.newest = -1  # seconds
        self._most_ranks = most_ranks
        self._spent: dict[tuple[str, int], _Spent] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Store a Snapshot's values for its second."""
        second = snapshot.now_ns // 10**9
        with self.lock:
            self._advance(second, snapshot.epoch)
            for view in self._with_room([view for run in snapshot.runs for view in run.ranks]):
                self._take_rank(view, second, snapshot)
            gpus = snapshot.gpus[:MOST_GPUS]
            for gpu in sorted(
                gpus, key=lambda reading: reading.uuid not in self.gpus
            ):  # evict no other
                if self.gpu_readings.get(gpu.uuid) is gpu and self._has(gpu.uuid, second):
                    continue  # the reading of the poll before
                series = _of(self.gpus, gpu.uuid, GPU_COLUMNS, MOST_GPUS, second)
                self.gpu_readings[gpu.uuid] = gpu
                for name, column in series.columns.items():
                    value = getattr(gpu, name)
                    column[second % SECONDS] = math.nan if value is None else value
                series.spread()

    def _has(self, uuid: str, second: int) -> bool:
        """Whether a GPU has a value in this second."""
        return uuid in self.gpus and self.gpus[uuid].newest == second

    def _advance(self, second: int, epoch: float) -> None:
        if self.newest < 0:
            self.first = self.newest = second
        if second > self.newest:
            since = self.newest + 1
            _move_on(self.ranks, since, second)
            _move_on(self.gpus, since, second)
            for passed in range(max(since, second - SECONDS), second):
                self.epochs[passed % SECONDS] = epoch - (second - passed)
            self.newest = second
            self.gpu_readings = {
                uuid: gpu for uuid, gpu in self.gpu_readings.items() if uuid in self.gpus
            }
            self._spent = {key: spent for key, spent in self._spent.items() if key in self.ranks}
            self.compilations = {
                key: compilations
                for key, compilations in self.compilations.items()
                if key in self.ranks
            }
        self.epochs[second % SECONDS] = epoch

    def _with_room(self, ranks: list[RankView]) -> list[RankView]:
        """The ranks that are stored, living ones first.

        Ranks with a series come before others, so that no other rank evicts it.
        """
        ordered = sorted(ranks, key=lambda rank: (not rank.living, self._is_new(rank)))
        return sorted(ordered[: self._most_ranks], key=self._is_new)

    def _is_new(self, view: RankView) -> bool:
        who = view.figures.who
        return (who.run, who.rank) not in self.ranks

    def _take_rank(self, view: RankView, second: int, snapshot: Snapshot) -> None:
        figures, judgement = view.figures, view.judgement
        key = (figures.who.run, figures.who.rank)
        series = _of(self.ranks, key, RANK_COLUMNS, self._most_ranks, second)
        at, columns, steps = second % SECONDS, series.columns, figures.steps
        columns["steps"][at] = steps.count
        mean = steps.last_second
        columns["step_seconds"][at] = math.nan if mean is None else mean
        last = figures.log.compilations
        self.compilations[key] = Compilations(snapshot.epoch, snapshot.now_ns, last)
        before = self._spent.get(key)
        pauses = figures.pauses
        earlier = before.pauses if before and before.second < second else pauses
        earlier = before.earlier if before and before.second == second else earlier
        if pauses is not earlier:  # else none is in progress
            code, seconds = _pause(earlier, pauses)
            # several short ones in each second are not shown as a long one
            if columns["pause"][at - 1] != code or seconds >= _LONG_PAUSE:
                columns["pause"][at] = code
        spent, grown = columns["compile_seconds"], 0.0
        if before is None or before.compile is not figures.compile:
            grown, phase = _grown(before.compile if before else None, figures.compile, judgement)
            if phase:
                columns["phase"][at] = phase
        spent[at] = min(1.0, (0.0 if math.isnan(spent[at]) else spent[at]) + grown)
        states, state = columns["state"], STATES.index(judgement.state)
        if columns["phase"][at] and judgement.warm:  # what it was before it has compiled
            state = int(states[at] or states[at - 1]) or state
        states[at] = state
        series.spread()
        self._spent[key] = _Spent(figures.compile, pauses, second, earlier)


def _grown(before: Compile | None, now: Compile, judgement: Judgement) -> tuple[float, int]:
    """The compile time since the previous poll, and its main phase."""
    open_phase = _PHASE_CODES.get(judgement.phase, _OTHER) if judgement.compiling else 0
    grown = 0.0 if before is None else now.seconds - before.seconds
    if before is None or grown <= 0:
        return 0.0, open_phase
    earlier = before.phase_seconds
    by = {name: spent - earlier.get(name, 0.0) for name, spent in now.phase_seconds.items()}
    return grown, _PHASE_CODES[max(by, key=by.__getitem__)] if by else _OTHER


def _pause(before: Pauses, pauses: Pauses) -> tuple[int, float]:
    """Code of the pause in progress, or of one since ``before``; and how long it took since."""
    saved = _more(pauses.checkpoint_seconds, before.checkpoint_seconds)
    if saved > 0 or pauses.saving_since is not None:  # a save can be part of an evaluation
        return PAUSE_NAMES.index("saving"), saved
    evaluated = _more(pauses.evaluation_seconds, before.evaluation_seconds)
    if evaluated > 0 or pauses.evaluating_since is not None:
        return PAUSE_NAMES.index("evaluation"), evaluated
    return 0, 0.0


def _more(seconds: float | None, before: float | None) -> float:
    return (seconds or 0.0) - (before or 0.0)


def _move_on(stored: dict[K, Series], since: int, second: int) -> None:
    """Clear the seconds from ``since`` to ``second``; evict series that were not seen in any."""
    for key, series in tuple(stored.items()):
        if series.newest <= second - SECONDS:
            del stored[key]
        else:
            series.clear(since, second + 1)


def _of(
    stored: dict[K, Series], key: K, kinds: Mapping[str, str], most: int, second: int
) -> Series:
    """The series of ``key``; a new one evicts the one that was last seen longest ago."""
    series = stored.pop(key, None)
    if series is None:
        if len(stored) >= most:
            del stored[next(iter(stored))]
        series = Series(kinds, second)
    series.see(second)
    stored[key] = series
    return series


def _blank(kind: str) -> float:
    return 0 if kind == "B" else math.nan


_DIGITS = 6  # of a second, a watt


def columns(
    history: LastHour, seconds: int = SECONDS, run: str | None = None, points: int = SECONDS
) -> dict[str, Any]:
    """The last ``seconds``, each column of at most ``points`` values of equally many seconds.

    A value for several seconds is the last one for counters, and the mean of the known values for
    everything else; states and phases keep their seconds.
    """
    with history.lock:
        until = history.newest + 1
        since = max(history.first, until - min(seconds, SECONDS)) if until else 0
        width = max(1, math.ceil((until - since) / points))
        epochs = _in_order(cut(history.epochs, since, until))
        ranks = _seen(history.ranks, since, until)
        gpus = _seen(history.gpus, since, until)
        readings = dict(history.gpu_readings)
        compilations = dict(history.compilations)
        oldest = epochs[0] if epochs else 0.0
    return {
        "at": [round(epochs[min(at, len(epochs)) - 1], 3) for at in _ends(epochs, width)],
        "seconds": width,
        "ranks": [
            {
                "run": name,
                "rank": rank,
                **_rank(groups, epochs, width),
                "recompiles": _recompiles(compilations[name, rank], oldest),
            }
            for (name, rank), groups in sorted(ranks.items())
            if run is None or name == run
        ],
        "gpus": [
            {
                "uuid": uuid,
                "index": readings[uuid].index,
                "power_limit_watts": readings[uuid].power_limit_watts,
                **{name: _means(groups[name], width) for name in GPU_COLUMNS},
            }
            for uuid, groups in sorted(gpus.items(), key=lambda entry: readings[entry[0]].index)
        ],
    }


def seconds_of(
    history: LastHour, key: tuple[str, int] | str, names: Sequence[str], seconds: int
) -> list[tuple[float, dict[str, float | str | None]]]:
    """The last ``seconds`` of a rank (run and number) or of a GPU (uuid), each with its time.

    ``names``: of the columns.
    """
    with history.lock:
        series = history.gpus.get(key) if isinstance(key, str) else history.ranks.get(key)
        if series is None:
            return []
        until = history.newest + 1
        since = max(history.first, until - min(seconds, SECONDS))
        epochs = _in_order(cut(history.epochs, since, until))
        columns = {name: cut(series.columns[name], since, until) for name in names}
    return [
        (epoch, {name: _value(name, column[at]) for name, column in columns.items()})
        for at, epoch in enumerate(epochs)
    ]


def _value(name: str, value: float) -> float | str | None:
    if name in _NAMES:
        return _NAMES[name][int(value)]
    return None if value != value else int(value) if name == "steps" else value


def _recompiles(compilations: Compilations, oldest: float) -> list[dict[str, Any]]:
    return [
        {"at": round(at, 3), **asdict(compilation(item))}
        for at, item in compilations.recompiles()
        if at >= oldest
    ]


def _ends(values: Sequence[float], width: int) -> range:
    """The end of each group of ``width`` values; the last may be beyond all values."""
    return range(width, len(values) + width, width)


def _seen(
    stored: Mapping[K, Series], since: int, until: int
) -> dict[K, dict[str, Sequence[float]]]:
    """The columns of the series that were seen in these seconds."""
    return {
        key: {name: cut(column, since, until) for name, column in series.columns.items()}
        for key, series in stored.items()
        if series.newest >= since
    }


def _in_order(epochs: Sequence[float]) -> list[float]:
    """The epochs in order: if the wall clock was set back, earlier ones are set back too."""
    ordered, shift = list(epochs), 0.0
    for at in range(len(ordered) - 2, -1, -1):
        if ordered[at] + shift >= ordered[at + 1]:
            shift = ordered[at + 1] - 1.0 - ordered[at]
        ordered[at] += shift
    return ordered


def _rank(
    groups: dict[str, Sequence[float]], epochs: Sequence[float], width: int
) -> dict[str, Any]:
    return {
        "steps": _lasts(groups["steps"], width),
        "step_seconds": _means(groups["step_seconds"], width),
        "compile_seconds": _means(groups["compile_seconds"], width),
        "states": _begins(groups["state"], STATES, epochs),
        "phases": _begins(groups["phase"], PHASE_NAMES, epochs),
        "pauses": _begins(groups["pause"], PAUSE_NAMES, epochs),
    }


def _begins(
    codes: Sequence[float], names: Sequence[str | None], epochs: Sequence[float]
) -> list[tuple[float, str | None]]:
    """Each stretch of one code: its begin, and the code's meaning."""
    result, rest = [], bytes(map(int, codes))
    while rest:
        at = len(codes) - len(rest)
        result.append((round(epochs[at], 3), names[rest[0]]))
        rest = rest.lstrip(rest[:1])
    return result


# An hour of 64 ranks is 700,000 numbers: do as little as possible for each.


def _means(values: Sequence[float], width: int) -> list[float | None]:
    if width == 1:
        return [None if value != value else round(value, _DIGITS) for value in values]
    return [_mean(values[at : at + width]) for at in range(0, len(values), width)]


def _mean(values: Sequence[float]) -> float | None:
    total = sum(values)
    if total == total:
        return round(total / len(values), _DIGITS)
    numbers = [value for value in values if value == value]
    return round(sum(numbers) / len(numbers), _DIGITS) if numbers else None


def _lasts(values: Sequence[float], width: int) -> list[int | None]:
    if width == 1:
        return [None if value != value else int(value) for value in values]
    return [_last(values[at : at + width]) for at in range(0, len(values), width)]


def _last(values: Sequence[float]) -> int | None:
    return next((int(value) for value in reversed(values) if value == value), None)
