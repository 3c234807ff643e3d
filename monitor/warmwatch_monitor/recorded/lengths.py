"""A histogram of step lengths, and all that is read off it: one sum over its bins gives it all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from warmwatch import record
from warmwatch_monitor.model import BUCKET_SECONDS, Lengths

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
    )


def seconds(ns: float | None) -> float | None:
    """Nanoseconds of the record, where 0 is "not known", in seconds."""
    return ns / 1e9 if ns else None
