"""What compiling cost: its time and energy. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from warmwatch_monitor.commands.report.goodput import LATER, WARMUP
from warmwatch_monitor.commands.report.parts import Cost

ALL = "compiling"
_ALL_OF_IT = 0.995

Rank = Mapping[str, Any]


def costs(ranks: Sequence[Rank], again: Sequence[float], slowest: int) -> tuple[Cost, ...]:
    """The costs of all ``ranks``; seconds are those of the ``slowest``, an index into ``ranks``.

    ``again``: the compile time of each rank after its first warm-up. An ended warm-up counts in
    wall time, from the first activity's begin to the last one's end, including what ran between
    them. An open warm-up counts its compile time.
    """
    compiling = [float(rank["compile"]["seconds"]) for rank in ranks]
    if not any(compiling):
        return ()
    within = [spent - later for spent, later in zip(compiling, again, strict=True)]
    warming = [_warmup(rank, spent) for rank, spent in zip(ranks, within, strict=True)]
    first = ranks[slowest]["warmup"].get("first")
    spending = _Spending(ranks, sum(compiling))
    costs = [spending.cost(WARMUP, warming, within, slowest, first["steps"] if first else None)]
    if any(again):
        costs.append(spending.cost(LATER, again, again, slowest))
        costs.append(spending.cost(ALL, compiling, compiling, slowest))
    return tuple(costs)


class _Spending(Struct, frozen=True):
    """Measured energy of the ranks' GPUs for all compiling, to be split by compile time."""

    ranks: Sequence[Rank]
    compiling: float

    def cost(
        self,
        what: str,
        seconds: Sequence[float],
        compiling: Sequence[float],
        slowest: int,
        steps: int | None = None,
    ) -> Cost:
        """The cost of ``seconds`` of each rank, of which it spent ``compiling`` on compilation."""
        joules, covered = _measured(self.ranks)
        share = min(1.0, sum(compiling) / self.compiling)
        return Cost(
            what=what,
            seconds=seconds[slowest],
            steps=steps,
            gpu_seconds=self._gpu_seconds(seconds),
            joules=None if joules is None else joules * share,
            estimated=joules is not None and share < _ALL_OF_IT,
            covered=None if joules is None else min(1.0, covered / self.compiling),
        )

    def _gpu_seconds(self, seconds: Sequence[float]) -> float | None:
        """``None`` if no rank has a known GPU."""
        counts = [len(rank["gpus"]) for rank in self.ranks]
        if not any(counts):
            return None
        return sum(spent * count for spent, count in zip(seconds, counts, strict=True))


def _warmup(rank: Rank, compiling: float) -> float:
    first = rank["warmup"].get("first")
    return float(first["seconds"]) if first else compiling


def _measured(ranks: Sequence[Rank]) -> tuple[float | None, float]:
    """Joules, and the compile time that they cover, which is less if the monitor started late."""
    values = [
        rank["energy"]
        for rank in ranks
        if rank["energy"] and rank["energy"]["compile_joules"] is not None
    ]
    if not values:
        return None, 0.0
    joules = sum(float(value["compile_joules"]) for value in values)
    return joules, sum(float(value["covered_seconds"] or 0.0) for value in values)
