"""``/history`` as JSON columns.

States and phases are listed at their begin, ``[second, name]``: they rarely change within an hour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import asdict

from warmwatch_monitor.last_hour.ring import (
    GPU_COLUMNS,
    PAUSE_NAMES,
    PHASE_NAMES,
    SECONDS,
    STATES,
    Compilations,
    LastHour,
    Series,
    cut,
)
from warmwatch_monitor.status.run import compilation

_DIGITS = 6  # of a second, a watt
K = TypeVar("K")


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
