"""How busy the chip really is: SM, tensor core and DRAM activity between two samples of GPM.

Hopper and later. A ratio needs two samples at least 100 ms apart; until there are, and where two
rounds come closer than that, the last ratios stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from warmwatch_monitor.sources.nvml.driver import GpmRequest, ask

_SHORTEST_NS = 100 * 10**6


class ActiveRatios(Struct, frozen=True, kw_only=True):
    """Ratios from 0 to 1, each ``None`` where it is not known."""

    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None


class Gpm:
    """Samples of one device; ``take`` asks NVML to fill a sample, ``None`` where it cannot."""

    def __init__(self, take: Callable[[Any], Any]) -> None:
        self._take = take
        self._samples = [ask("nvmlGpmSampleAlloc") for _ in range(2)]
        self._request = GpmRequest()
        self._taken_ns: int | None = None
        self._last = ActiveRatios()

    def read(self, now_ns: int) -> ActiveRatios:
        """The activity since the sample before."""
        if self._taken_ns is not None and now_ns - self._taken_ns < _SHORTEST_NS:
            return self._last
        before, fresh = self._samples
        if before is None or fresh is None or self._take(fresh) is None:
            self._last, self._taken_ns = ActiveRatios(), None
            return self._last
        if self._taken_ns is not None:
            self._last = self._ratios(before, fresh)
        self._taken_ns = now_ns
        self._samples = [fresh, before]
        return self._last

    def close(self) -> None:
        """Give the samples back."""
        for sample in self._samples:
            if sample is not None:
                ask("nvmlGpmSampleFree", sample)

    def _ratios(self, before: Any, fresh: Any) -> ActiveRatios:
        percents = self._request.ask(before, fresh)
        sm, tensor, dram = (None if one is None else min(1.0, one / 100) for one in percents)
        return ActiveRatios(sm=sm, tensor=tensor, dram=dram)
