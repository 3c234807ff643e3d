"""Steps far longer than usual although nothing compiled, and a limit on their journal lines.

A regular step costs one comparison with a bound (``steps.py``); everything here is rare.
"""

from __future__ import annotations

from collections.abc import Sequence

from warmwatch.shared import record

TIMES = 4  # as long as a usual step
FLOOR_NS = 10**9  # shorter steps are never long
_SLOW_TIMES, _SLOW_FLOOR_NS = 1.5, 10**8  # bounds for looking at possible causes
_FEWEST = 10  # steps, to determine the usual length
_FREELY = 100  # lines without a limit, then one in a while
_APART_NS = 15 * 60 * 10**9


def usual_ns(clean_bins: Sequence[int], ring: Sequence[int]) -> int:
    """The median of the clean steps; 0 if there are too few.

    The median of the last steps (``ring``, see ``record.recent``) counts if it is higher: in a
    training that has become slower, the slow steps are the usual ones.
    """
    if sum(clean_bins) < _FEWEST:
        return 0
    lately = [record.length_ns(word) for word in ring if record.is_clean(word)]
    median = record.median_ns(lately) if len(lately) >= _FEWEST else None
    return max(int(record.quantile_ns(clean_bins, 0.5) or 0), int(median or 0))


def is_long(duration: int, usual: int) -> bool:
    """Whether a step of that length belongs in the journal."""
    return 0 < usual * TIMES < duration > FLOOR_NS


def slow_from_ns(usual: int) -> int:
    """The length from which a step is slow or long.

    Looking at the causes takes some 100 us, so short steps are skipped. The steps of a training
    that stays slow become the usual ones, which ends that.
    """
    return max(_SLOW_FLOOR_NS, round(_SLOW_TIMES * usual))


class LeftOut:
    """Limits the journal lines of a run with many long steps.

    After the first lines, one per quarter of an hour, with the number left out before it.
    """

    def __init__(self) -> None:
        self._lines = self._left_out = self._last_ns = 0

    def before(self, now: int) -> int | None:
        """The number left out before the step that ended now; ``None``: leave this one out too."""
        if self._lines >= _FREELY and now - self._last_ns < _APART_NS:
            self._left_out += 1
            return None
        self._lines, self._last_ns = self._lines + 1, now
        left_out, self._left_out = self._left_out, 0
        return left_out
