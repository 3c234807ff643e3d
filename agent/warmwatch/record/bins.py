"""The histogram of step times: where its bins end, and quantiles read off it."""

from __future__ import annotations

from collections.abc import Sequence

# Upper bounds of the step-time bins in nanoseconds: the E48 series of preferred numbers, with
# 2.49 and 5.11 made 2.5 and 5 so that the usual Prometheus buckets fall on bin edges. 100 us to
# 10,000 s, under 5 % wide: a median read off the bins is within 2.5 % of the true one.
_E48 = (
    *(100, 105, 110, 115, 121, 127, 133, 140, 147, 154, 162, 169, 178, 187, 196, 205),
    *(215, 226, 237, 250, 261, 274, 287, 301, 316, 332, 348, 365, 383, 402, 422, 442),
    *(464, 487, 500, 536, 562, 590, 619, 649, 681, 715, 750, 787, 825, 866, 909, 953),
)
BOUNDS_NS = (*(m * 10**decade for decade in range(3, 11) for m in _E48), 10**13)
BINS = len(BOUNDS_NS) + 1


def longest_ns(bins: Sequence[int]) -> int:
    """The longest of binned durations, rounded up to its bin's end; 0 of none."""
    filled = [index for index, count in enumerate(bins) if count]
    return BOUNDS_NS[min(filled[-1], len(BOUNDS_NS) - 1)] if filled else 0


def quantile_ns(bins: Sequence[int], q: float) -> float | None:
    """The ``q``-quantile (0 to 1) of binned durations in nanoseconds; ``None`` of none."""
    total = sum(bins)
    if not total:
        return None
    rank, seen = q * total, 0
    for index, count in enumerate(bins):
        if count and seen + count >= rank:
            low = BOUNDS_NS[index - 1] if index else 0
            high = BOUNDS_NS[min(index, len(BOUNDS_NS) - 1)]
            return float(low + (high - low) * max(0.0, rank - seen) / count)
        seen += count
    raise AssertionError("a quantile above 1 was asked for")
