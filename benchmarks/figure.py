"""One measured figure beside its limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``value`` is to be at most ``limit``; without one it is said for information."""

    name: str
    value: float
    limit: float | None = None
    detail: str = ""

    @property
    def met(self) -> bool:
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        bound = "" if self.limit is None else f"at most {self.limit:g}"
        verdict = "" if self.limit is None else ("ok" if self.met else "MISSED")
        return f"{self.name:<52} {self.value:>9.4g}  {bound:<14} {verdict:<7} {self.detail}"


def nanoseconds(call: Callable[[], object], number: int, rounds: int = 9) -> float:
    """Nanoseconds of one ``call``: the best of some rounds, as ``timeit`` recommends."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _ in range(number):
            call()
        best = min(best, (time.perf_counter_ns() - began) / number)
    return best
