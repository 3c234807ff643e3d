"""Clean steps of a rank: those between two polls, an earlier level, and steps that a GPU queues.

A record has the last 64 step lengths, and a histogram of all. Without a daemon only the histogram
has a level of more than 64 steps ago.

A step of a training on GPUs ends when its kernels are launched. A step that synchronizes, or finds
the queue full, waits for all queued kernels. So most steps take as long as a launch, and a few are
far longer. The length of a step is a mean from wait to wait:

* Of one record (``record.recent.queued_ns``): among the last 64 steps if several of them
  synchronized, else among all since something last compiled.
* With earlier polls (:class:`QueuedSteps`): between the synchronizations that these found,
  of the last seconds, for the speed may have changed since the run began. Without such ones, among
  the steps of the last 20 to 40 s. If far more steps than usual have passed without a wait, the
  loop no longer waits, and a step is as long as its launch.
* The waits are part of that length. So they are no gaps (:func:`gaps`).

The detector of slowdowns (``speed``) takes the mean of all clean steps between two polls, and so do
charts (:class:`LastSecond`): the last step alone is one of several lengths. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch.shared.record import BOUNDS_NS, Slot
from warmwatch.shared.record.recent import (
    APART,
    last_synchronized,
    launch_ns,
    queued_ns,
    waits,
)
from warmwatch_monitor.model.figures import Lengths, median
from warmwatch_monitor.model.journal import LongStep

SLOWER_TIMES = 1.5
FEW_SHARE = 0.05  # of the steps: such a level may be noise
_FEW = 32  # steps


class CleanSteps(Struct, frozen=True):
    """The clean steps of a record up to ``at_ns``, the mark of a step, by bins of their length."""

    at_ns: int
    bins: tuple[int, ...]
    sum_ns: int

    @classmethod
    def of(cls, slot: Slot) -> CleanSteps:
        return cls(slot.steps.last_step_ns, slot.clean_bins, slot.clean_sum_ns)

    def since(self, before: CleanSteps) -> CleanSteps:
        bins = tuple(map(int.__sub__, self.bins, before.bins))
        return CleanSteps(self.at_ns, bins, self.sum_ns - before.sum_ns)

    def mean_ns(self) -> float:
        return self.sum_ns / max(1, sum(self.bins))


def level_before(slot: Slot) -> float | None:
    """The fast level in the histogram, in seconds; ``None`` if it cannot be found there.

    The histogram covers the whole run. After a later compilation, some steps in it are older than
    that, and it is not known which: at worst the fastest ones. Then the level is at most this.
    """
    recent_ns, bins = slot.recent_step_ns, slot.clean_bins
    if recent_ns is None:
        return None
    if slot.compile.warmups <= 1:
        return _fast_level(bins, recent_ns)
    since = _without_fastest(bins, sum(bins) - slot.clean_since_activity[0])
    pair = (_fast_level(since, recent_ns), _mean_before(slot))
    return min((level for level in pair if level), default=None)


def _mean_before(slot: Slot) -> float | None:
    """The mean of the clean steps since the last compilation, without the last 64, in seconds."""
    (count, sum_ns), lengths = slot.clean_since_activity, record.recent_lengths(slot.recent)
    count -= len(lengths)
    return (sum_ns - sum(lengths)) / count / 1e9 if count >= _FEW else None


def _without_fastest(bins: Sequence[int], count: int) -> list[int]:
    """``bins`` without the first ``count`` steps in them."""
    left = []
    for steps in bins:
        less = min(steps, max(0, count))
        left.append(steps - less)
        count -= less
    return left


def _fast_level(bins: Sequence[int], recent_ns: float) -> float | None:
    """The fast level in ``bins``, in seconds; ``None`` if they have too few steps.

    It is the median of the steps far faster than the recent ones if they are a level of their own;
    else that of all steps.
    """
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
    total_ns = sum(count * _end_ns(index) for index, count in enumerate(bins[edge:], edge))
    return sum(bins[edge:]), total_ns / 1e9


def blocks_in(
    bins: Sequence[int], excluded: Iterable[int], block_ns: int
) -> Iterator[tuple[float, int]]:
    """Each length in seconds with its number of blocks, of the steps in ``bins``.

    ``excluded``: lengths of steps in ``bins`` that do not count. Steps of one length are in one
    block as far as possible, which assumes the longest runs.
    """
    left = list(bins)
    for length in excluded:
        left[bisect_left(BOUNDS_NS, length)] -= 1
    for index, count in enumerate(left):
        if count > 0:
            end_ns = _end_ns(index)
            yield end_ns / 1e9, math.ceil(count * min(1.0, end_ns / block_ns))


def _end_ns(index: int) -> int:
    """The upper bound of a bin; the last one has none, and counts as the one before."""
    end: int = BOUNDS_NS[min(index, len(BOUNDS_NS) - 1)]
    return end


class LastSecond(Struct, frozen=True):
    """The mean clean step between two polls that are about a second apart.

    ``at_ns``: the last step at the later one. ``clean``: all clean steps up to it.
    ``mean_seconds``: ``None`` if no step between the two was clean. Of steps of over a second it is
    the mean of two, so that a loop with two lengths has one. ``only_seconds``: the length of the
    only one between the two.
    """

    at_ns: int
    clean: Lengths
    mean_seconds: float | None
    only_seconds: float | None = None

    @classmethod
    def follow(cls, last: LastSecond | None, slot: Slot, clean: Lengths) -> LastSecond:
        """``last`` after this poll. Before the second one, the recent speed."""
        at_ns = slot.steps.last_step_ns
        if last is None or at_ns < last.at_ns:
            recent_ns = slot.recent_step_ns
            return cls(at_ns, clean, recent_ns / 1e9 if recent_ns else None)
        if at_ns - last.at_ns < _MEASURED_NS:
            return last
        count = (clean.count or 0) - (last.clean.count or 0)
        seconds = (clean.sum_seconds or 0.0) - (last.clean.sum_seconds or 0.0)
        if count != 1:
            return cls(at_ns, clean, seconds / count if count > 0 else None)
        before = seconds if last.only_seconds is None else last.only_seconds
        return cls(at_ns, clean, (before + seconds) / 2, seconds)


_WINDOW_NS = 20 * 10**9
_MEASURED_NS = 9 * 10**8  # after that, the length of a step is measured once a second
_MISSING = 3  # times as many steps as usual without a wait: the loop no longer waits
# Long steps are waits if a step takes 3 times as long as a launch, and at least 3 of them have
# about one length. A hang takes more than twice as long as those.
_QUEUED_TIMES, _FEWEST_WAITS, _REGULAR_TIMES = 3, 3, 2
# Three synchronizations are two periods: two hiccups in a row are not one.
_FEWEST_SYNCHRONIZED, _APART_NS, _BETWEEN_NS = 3, 5 * 10**8, 2 * 10**9
_STALE_TIMES = 2  # times the usual distance between two synchronizations without a new one


class Synchronized(Struct, frozen=True):
    """A step that left nothing queued: the number of clean steps up to it, and their sum."""

    steps: int
    sum_ns: int

    @classmethod
    def last(cls, slot: Slot, lengths: Sequence[int]) -> Synchronized | None:
        """The last one, if ``lengths``, those of the last 64 steps, show it."""
        newer = last_synchronized(lengths)
        if newer is None:
            return None
        return cls(sum(slot.clean_bins) - newer, slot.clean_sum_ns - sum(lengths[:newer]))


class QueuedSteps(Struct, frozen=True):
    """The clean steps of a training on GPUs at polls of this warm-up."""

    slot: Slot  # at the last measurement
    step_ns: float | None  # the recent length of a step at it; ``None`` if not known
    latest: CleanSteps  # up to 20 seconds before it
    before: CleanSteps | None  # 20 to 40 seconds before it; ``None`` until then
    waited: int  # number of steps at the last measurement that found a new wait
    # the last ones, oldest first, as few as span two periods and two seconds
    synchronized: tuple[Synchronized, ...] = ()

    @classmethod
    def follow(
        cls, last: QueuedSteps | None, slot: Slot, lengths: Sequence[int]
    ) -> QueuedSteps | None:
        """``last`` after this poll; ``None`` without GPUs, and before the first step.

        ``lengths``: those of ``slot`` that determine the recent speed.
        """
        if not slot.identity.gpus or not slot.steps.steps:
            return None
        steps, at_ns = slot.steps.steps, slot.steps.last_step_ns
        if (
            last is None
            or at_ns < last.latest.at_ns
            or last.slot.compile.begun != slot.compile.begun
        ):
            return cls(slot, slot.recent_step_ns, CleanSteps.of(slot), None, steps)
        synchronized = last._synchronized_with(Synchronized.last(slot, lengths))
        if last.before and at_ns - last.slot.steps.last_step_ns < _MEASURED_NS:
            return replace(last, synchronized=synchronized)
        latest, before, waited = last.latest, last.before, last.waited
        if not before or _waited_since(slot, last.slot, lengths):
            waited = steps
        if at_ns - latest.at_ns >= _WINDOW_NS:
            latest, before = CleanSteps.of(slot), latest
        now = cls(slot, None, latest, before, waited, synchronized)
        return replace(now, step_ns=now._recent_ns(lengths))

    def _synchronized_with(self, new: Synchronized | None) -> tuple[Synchronized, ...]:
        """Those of the last poll, and ``new`` if it is later."""
        last = self.synchronized
        if new is None or (last and new.sum_ns - last[-1].sum_ns < _APART_NS):
            return last
        apart = [after.sum_ns - before.sum_ns for before, after in pairwise((*last[-2:], new))]
        longest = max(2 * _WINDOW_NS, _MISSING * min(apart, default=0))
        recent = [*(step for step in last if new.sum_ns - step.sum_ns <= longest), new]
        while len(recent) > _FEWEST_SYNCHRONIZED and new.sum_ns - recent[1].sum_ns >= _BETWEEN_NS:
            del recent[0]
        return tuple(recent)

    def departure(self) -> record.Trend | None:
        """The steps of the last period, if their mean is far from the claimed length of a step."""
        if len(self.synchronized) < _FEWEST_SYNCHRONIZED or not self.step_ns:
            return None
        before, last = self.synchronized[-2:]
        count = last.steps - before.steps
        mean = (last.sum_ns - before.sum_ns) / max(1, count)
        if max(mean, self.step_ns) <= APART * min(mean, self.step_ns):
            return None
        return record.Trend(mean, count, mean < self.step_ns)

    def _between_ns(self) -> float | None:
        """The mean length of a step between the last synchronizations; ``None`` if unknown."""
        if len(self.synchronized) < _FEWEST_SYNCHRONIZED:
            return None
        first, last = self.synchronized[0], self.synchronized[-1]
        apart = max(after.steps - before.steps for before, after in pairwise(self.synchronized))
        since_last = sum(self.slot.clean_bins) - last.steps
        if since_last > max(record.RING, _STALE_TIMES * apart):
            return None
        return (last.sum_ns - first.sum_ns) / (last.steps - first.steps)

    def _recent_ns(self, lengths: Sequence[int]) -> float | None:
        launch = launch_ns(lengths)
        between_ns = self._between_ns()
        if launch is None or (self.before is None and between_ns is None):
            return self.slot.recent_step_ns
        if self.before is None:
            return queued_ns(lengths, (), 0, 0, between_ns=between_ns)
        since = CleanSteps.of(self.slot).since(self.before)
        count = sum(since.bins)
        usual = count / max(1, waits(since.bins, launch))  # steps from wait to wait
        if self.slot.steps.steps - self.waited > max(record.RING, _MISSING * usual):
            return launch
        return queued_ns(lengths, since.bins, count, since.sum_ns, between_ns=between_ns)


def gaps(long_steps: Sequence[LongStep], step_seconds: float | None) -> tuple[LongStep, ...]:
    """``long_steps`` without regular waits for the GPU.

    ``step_seconds``: the length of a step, which includes such waits.
    """
    longest_launch = (step_seconds or 0.0) / _QUEUED_TIMES
    regular = [
        step
        for step in long_steps
        if step.usual_seconds < longest_launch
        and not (step.saving_seconds or step.evaluating_seconds)
    ]
    if len(regular) < _FEWEST_WAITS:
        return tuple(long_steps)
    longest = _REGULAR_TIMES * median(step.seconds for step in regular)
    return tuple(step for step in long_steps if step not in regular or step.seconds > longest)


def _waited_since(slot: Slot, then: Slot, lengths: Sequence[int]) -> bool:
    """Whether a step after ``then`` waited for the GPU."""
    launch = launch_ns(lengths)
    return launch is None or waits(slot.clean_bins, launch) > waits(then.clean_bins, launch)
