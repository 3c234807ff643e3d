"""The histogram of a run's clean steps: those between two polls, and an earlier level. Pure.

A record has the last 64 step lengths, and a histogram of all. Without a daemon only the histogram
has a level of more than 64 steps ago.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from warmwatch.shared import record
from warmwatch.shared.record import BOUNDS_NS, Slot

SLOWER_TIMES = 1.5
FEW_SHARE = 0.05  # of the steps: such a level may be noise
_FEW = 32  # steps


class CleanSteps(NamedTuple):
    """The clean steps of a record up to ``at_ns``, the mark of a step, by bins of their length."""

    at_ns: int
    bins: tuple[int, ...]
    sum_ns: int

    @classmethod
    def of(cls, slot: Slot) -> CleanSteps:
        return cls(slot.steps.last_step_ns, slot.clean_bins, slot.clean_sum_ns)

    def since(self, before: CleanSteps) -> CleanSteps:
        """The steps after ``before``."""
        bins = tuple(map(int.__sub__, self.bins, before.bins))
        return CleanSteps(self.at_ns, bins, self.sum_ns - before.sum_ns)

    def mean_ns(self) -> float:
        return self.sum_ns / max(1, sum(self.bins))


def level_before(slot: Slot) -> float | None:
    """The fast level in the histogram, in seconds; ``None`` if it cannot be found there.

    It is the median of the steps far faster than the recent ones if they are a level of their own;
    else that of all steps.
    """
    recent_ns, bins = slot.recent_step_ns, slot.clean_bins
    # The bins cover the whole run: after a second warm-up they mix the steps of both.
    if recent_ns is None or slot.compile.warmups > 1:
        return None
    fast = bins[: bisect_left(BOUNDS_NS, recent_ns / SLOWER_TIMES)]
    if sum(fast) >= max(_FEW, FEW_SHARE * sum(bins)):
        level = record.quantile_ns(fast, 0.5) or 0.0
        between = math.sqrt(level * recent_ns)
        # the fast end of steps that vary has more steps next to it, at the slow side
        if _around(bins, level) > 2 * _around(bins, between):
            return level / 1e9
    middle = record.quantile_ns(bins, 0.5)
    return middle / 1e9 if middle and sum(bins) >= _FEW else None


def _around(bins: Sequence[int], ns: float) -> int:
    """The number of steps within 10 % of ``ns``."""
    return sum(bins[bisect_left(BOUNDS_NS, 0.9 * ns) : bisect_left(BOUNDS_NS, 1.1 * ns) + 1])


def slow_in(bins: Sequence[int], edge_ns: float) -> tuple[int, float]:
    """The number of steps longer than ``edge_ns``, and the seconds that they took."""
    edge = bisect_left(BOUNDS_NS, edge_ns)
    counts = ((at, count) for at, count in enumerate(bins[edge:], edge) if count)
    seconds = sum(count * _end_ns(at) for at, count in counts) / 1e9
    return sum(bins[edge:]), seconds


def blocks_in(
    bins: Sequence[int], but: Iterable[int], block_ns: int
) -> Iterator[tuple[float, int]]:
    """A length in seconds with its number of blocks, for the steps in ``bins`` but not in ``but``.

    Steps of one length are in one block as far as possible, which assumes the longest runs.
    """
    left = list(bins)
    for length in but:
        left[bisect_left(BOUNDS_NS, length)] -= 1
    for at, count in enumerate(left):
        if count > 0:
            yield _end_ns(at) / 1e9, math.ceil(count * min(1.0, _end_ns(at) / block_ns))


def _end_ns(at: int) -> int:
    end: int = BOUNDS_NS[min(at, len(BOUNDS_NS) - 1)]
    return end
