"""Steps that took far longer than usual though nothing compiled: which they are, and how many of
them the journal tells.

What is asked at every step is one comparison with a bound (``_steps``); all here is rare.
"""

from __future__ import annotations

from collections.abc import Sequence

from warmwatch.shared import record

TIMES = 4  # as long as a usual step
FLOOR_NS = 10**9  # what is shorter, nobody wonders about
_FEWEST = 10  # steps of which one can say what is usual
_FREELY = 100  # lines, then one in a while
_APART_NS = 15 * 60 * 10**9


def usual_ns(clean_bins: Sequence[int], ring: Sequence[int]) -> int:
    """The median of the clean steps; 0 if there are too few.

    If the last steps (``ring``, see ``record.recent``) have a higher median, that one counts: in a
    training that has become slower, the slow steps are the usual ones.
    """
    if sum(clean_bins) < _FEWEST:
        return 0
    lately = [record.length_ns(word) for word in ring if record.is_clean(word)]
    median = record.median_ns(lately) if len(lately) >= _FEWEST else None
    return max(int(record.quantile_ns(clean_bins, 0.5) or 0), int(median or 0))


def is_long(duration: int, usual: int) -> bool:
    """Whether a step of that length is one to be told of."""
    return 0 < usual * TIMES < duration > FLOOR_NS


def worth_a_look_ns(usual: int) -> int:
    """What is longer may be long: half of it, for a median falls unseen where steps get shorter."""
    return max(FLOOR_NS, TIMES * usual // 2)


class LeftOut:
    """A run that saves every hundred steps would fill its journal: beyond the first lines there is
    one in a quarter of an hour, which says how many were left out before it."""

    def __init__(self) -> None:
        self._lines = self._left_out = self._last_ns = 0

    def before(self, now: int) -> int | None:
        """How many were left out before the one that ended now; ``None``: this one is, too."""
        if self._lines >= _FREELY and now - self._last_ns < _APART_NS:
            self._left_out += 1
            return None
        self._lines, self._last_ns = self._lines + 1, now
        left_out, self._left_out = self._left_out, 0
        return left_out
