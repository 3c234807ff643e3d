"""A histogram of step lengths, and all that is read off it: one sum over its bins gives it all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import sqrt

from warmwatch import record
from warmwatch_monitor.model import BUCKET_SECONDS, Lengths

_FEWEST = 6  # of fewer, the least and the greatest are not far enough apart
_HALF_OF_95 = 0.98  # 1.96 standard deviations of a share of one half
# the fine bin that ends where each bucket does
_LAST_BINS = tuple(record.BOUNDS_NS.index(round(end * 1e9)) for end in BUCKET_SECONDS)


def lengths(bins: Sequence[int], sum_ns: int) -> Lengths:
    """What ``bins`` amount to, of steps that took ``sum_ns`` together."""
    upto = tuple(accumulate(bins))
    return Lengths(
        count=upto[-1],
        sum_seconds=sum_ns / 1e9,
        upto=tuple([upto[last] for last in _LAST_BINS]),
        median=seconds(record.quantile_of(upto, 0.5)),
        p99=seconds(record.quantile_of(upto, 0.99)),
        longest=seconds(record.longest_of(upto)),
        **_certain(upto),
    )


def _certain(upto: Sequence[int]) -> dict[str, float | None]:
    """Between which of its steps the median lies: whatever their distribution, by their order."""
    off = _HALF_OF_95 / sqrt(upto[-1]) if upto[-1] >= _FEWEST else None
    if off is None:
        return {}
    return {
        "median_low": seconds(record.quantile_of(upto, 0.5 - off)),
        "median_high": seconds(record.quantile_of(upto, 0.5 + off)),
    }


def seconds(ns: float | None) -> float | None:
    """Nanoseconds of the record, where 0 is "not known", in seconds."""
    return ns / 1e9 if ns else None
