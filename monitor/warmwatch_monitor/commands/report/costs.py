"""What compiling cost: its time and energy. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warmwatch_monitor.commands.report.goodput import LATER, WARMUP
from warmwatch_monitor.commands.report.parts import Cost

ALL = "compiling"
_ALL_OF_IT = 0.995

Rank = Mapping[str, Any]


def costs(ranks: Sequence[Rank], late: Sequence[float], slowest: int) -> tuple[Cost, ...]:
    """The costs of all ``ranks``; seconds are those of the ``slowest``, an index into ``ranks``.

    ``late``: the compile time of each rank after its first warm-up. An ended warm-up counts in
    wall time, from the first activity's begin to the last one's end, including what ran between
    them. An open warm-up counts its compile time.
    """
    compiling = [float(rank["compile"]["seconds"]) for rank in ranks]
    if not any(compiling):
        return ()
    early = [spent - after for spent, after in zip(compiling, late, strict=True)]
    first = [rank["warmup"].get("first") for rank in ranks]
    warming = [
        float(span["seconds"]) if span else spent for span, spent in zip(first, early, strict=True)
    ]
    gpus = [len(rank["gpus"]) for rank in ranks]
    energy = [
        value for rank in ranks if (value := rank["energy"]) and value["compile_joules"] is not None
    ]
    joules = sum(value["compile_joules"] for value in energy)
    covered = sum(value["covered_seconds"] for value in energy) / sum(compiling)

    def cost(what: str, seconds: list[float], compiled: Sequence[float]) -> Cost:
        """The energy was measured for all compiling, and is split by compile time."""
        share = min(1.0, sum(compiled) / sum(compiling))
        spent = sum(length * count for length, count in zip(seconds, gpus, strict=True))
        steps = first[slowest]["steps"] if what == WARMUP and first[slowest] else None
        return Cost(
            what=what,
            seconds=seconds[slowest],
            steps=steps,
            gpu_seconds=spent if any(gpus) else None,
            joules=joules * share if energy else None,
            estimated=bool(energy) and share < _ALL_OF_IT,
            covered=min(1.0, covered) if energy else None,
        )

    made = [cost(WARMUP, warming, early)]
    if any(late):
        made += [cost(LATER, list(late), late), cost(ALL, compiling, compiling)]
    return tuple(made)
