"""What a rank's peers took for what it compiles now. Pure.

Ranks of a run compile the same things in the same order, unless they differ, which is told apart
(``export/words/differences``). So a peer that has ended as many activities as this rank has begun
has done what this one is at, and the longest of its own explains how long that may take.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from warmwatch.record import CompileCounts


class Precedents:
    """Of one run, given the counts of all its ranks."""

    def __init__(self, ranks: Iterable[CompileCounts]) -> None:
        pairs = sorted((one.ended, one.longest_activity_ns) for one in ranks)
        self._ended = [ended for ended, _ in pairs]
        self._longest = list(accumulate((longest for _, longest in reversed(pairs)), max))[::-1]

    def longest_ns(self, rank: CompileCounts) -> int:
        """The longest activity of those who have come so far; 0 where nobody has.

        A rank that compiles is none of them: it has begun one more than it has ended.
        """
        if not rank.active_since_ns:
            return 0
        first = bisect_left(self._ended, rank.begun)
        return self._longest[first] if first < len(self._longest) else 0
