"""The ring of the last step lengths: one word a step, and the recent speed from it. Pure.

Step ``n`` has word ``(n - 1) % RING``. A word is independent, like every hot word. Its low bits are
the step's length in nanoseconds, 0 if its begin was not marked. Next come whole seconds of pauses
before it (saving, evaluation), which the length excludes. The top bit marks a step that was not
clean. So the word of a regular step is its length and nothing else.

A reader may find the word of a step that was marked after it read ``steps``. It replaces the ring's
oldest word, and is a true length too: the median moves by one step in sixty-four.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise, takewhile
from typing import NamedTuple

# Upper bounds of the step-time bins in nanoseconds: the E48 series of preferred numbers. 2.49 and
# 5.11 are changed to 2.5 and 5, so that the usual Prometheus buckets fall on bin edges. 100 us to
# 10,000 s, under 5 % wide: a median from the bins is within 2.5 % of the true one.
_E48 = (
    *(100, 105, 110, 115, 121, 127, 133, 140, 147, 154, 162, 169, 178, 187, 196, 205),
    *(215, 226, 237, 250, 261, 274, 287, 301, 316, 332, 348, 365, 383, 402, 422, 442),
    *(464, 487, 500, 536, 562, 590, 619, 649, 681, 715, 750, 787, 825, 866, 909, 953),
)
BOUNDS_NS = (*(m * 10**decade for decade in range(3, 11) for m in _E48), 10**13)
BINS = len(BOUNDS_NS) + 1
HALF_A_BIN = 0.025  # of a median: the largest error of one computed from the bins


def longest_ns(bins: Sequence[int]) -> int:
    """The longest of binned durations, rounded up to its bin's end; 0 if there are none."""
    return longest_of(tuple(accumulate(bins)))


def quantile_ns(bins: Sequence[int], q: float) -> float | None:
    """The ``q``-quantile (0 to 1) of binned durations in nanoseconds; ``None`` if there are
    none."""
    return quantile_of(tuple(accumulate(bins)), q)


def longest_of(upto: Sequence[int]) -> int:
    """As :func:`longest_ns`, from cumulative counts up to the end of each bin."""
    last = bisect_left(upto, upto[-1])
    return BOUNDS_NS[min(last, len(BOUNDS_NS) - 1)] if upto[-1] else 0


def quantile_of(upto: Sequence[int], q: float) -> float | None:
    """As :func:`quantile_ns`, from cumulative counts up to the end of each bin."""
    if not upto[-1]:
        return None
    rank = q * upto[-1]
    index = bisect_left(upto, max(rank, 1))  # for q = 0, the first bin that is not empty
    before = upto[index - 1] if index else 0
    low = BOUNDS_NS[index - 1] if index else 0
    high = BOUNDS_NS[min(index, len(BOUNDS_NS) - 1)]
    return float(low + (high - low) * max(0.0, rank - before) / (upto[index] - before))


RING = 64
_LENGTH_BITS, _PAUSE_BITS = 48, 15
LONGEST_NS = (1 << _LENGTH_BITS) - 1  # more than three days
_LONGEST_PAUSE = (1 << _PAUSE_BITS) - 1
_NOT_CLEAN = 1 << 63

WINDOW_NS = 60 * 10**9
FEWEST = 3  # clean steps that a recent length needs
_SLOWED_STEPS, _CHANGED_NS = 5, 5 * 10**9  # a hiccup has fewer steps, or takes less time
_FASTER_STEPS = 8  # of steps that vary, 5 in a row are short by chance
_ODD = 1 / 8  # of the steps: at most so many are exceptions, such as a log line at every tenth
_RECURRING = 1 / 16  # of the steps: if these take most of the time, they are no exceptions either
_LONG_TIMES = 1.5  # the median: such a step waited for the GPU, or is of another size
_EXTREME = 2  # steps at each end that may be hiccups
_SYNCHRONIZED_TIMES = 2  # the mean: such a step waited for several others
_FEW_LONG = 0.05  # of all steps: those that wait, if the ring is short and has none of them
_TIMES_SHARE = 3  # of the ring: bins with at most so large a share of waits show the same loop
UNEQUAL = 1.1  # a mean that far above the median is not noise
# Clean steps that show the speed of new code: a few that took 10 s, many that took 3 s, or fewer
# that took a minute. A trend in them counts until they are many and took a minute: some trainings
# vary for ever.
_FEW, _MANY, _FEW_NS, _MANY_NS = 10, RING, 10 * 10**9, 3 * 10**9
_FEW_OF_A_MINUTE, _UNEQUAL_FEW = 5, 1.05  # a slow trend shows less in so few
# Share of the pairs of an older and a newer step in which the same one has to be longer, so that a
# speed that has settled stays so: noise that reaches it by chance would take the claim back. A few
# newest steps are more often on one side by chance, so all of their pairs count.
_OF_PAIRS, _NEWEST, _FEW_NEWEST = 0.9, 4, 8
# The newest steps contradict a claimed length if so many are beyond an edge, with such a median, as
# multiples of it, for so long. In less time, a hiccup does, and the claim follows as fast.
APART = 1.2
_DEPARTED = ((_FEW_NEWEST, UNEQUAL, APART), (_NEWEST, 1.25, _LONG_TIMES))
_DEPARTED_NS, _RECURRING_RUNS = 10**8, 2


def packed(length_ns: int, pause_ns: int = 0, *, clean: bool = True) -> int:
    """The word of a step."""
    pause = min((pause_ns + 500_000_000) // 10**9, _LONGEST_PAUSE)
    word = min(length_ns, LONGEST_NS) | pause << _LENGTH_BITS
    return word if clean else word | _NOT_CLEAN


def length_ns(word: int) -> int:
    """The length in a word; 0 if unknown."""
    return word & LONGEST_NS


def is_clean(word: int) -> bool:
    """Whether the step is known to be clean, with a length."""
    return word < _NOT_CLEAN and word & LONGEST_NS > 0


def gap_ns(word: int) -> int:
    """The time from the previous step to this one, including pauses."""
    return (word & LONGEST_NS) + (word >> _LENGTH_BITS & _LONGEST_PAUSE) * 10**9


def newest_first(ring: Sequence[int], steps: int) -> tuple[int, ...]:
    """The words of the last steps, as of ``steps``; at most ``steps`` of them."""
    at = steps % RING
    return tuple((*ring[at:], *ring[:at])[::-1][: min(steps, RING)])


def recent_lengths(words: Sequence[int]) -> list[int]:
    """The clean steps that determine the recent speed, newest first; empty if there are too few.

    ``words``: newest first. Takes those of the last minute before the last step, but at least
    FEWEST. Other code ran before a step with compile activity, so steps before it do not count as
    soon as there are enough. Steps before a change of the speed do not count either.
    """
    # Fast path: nearly always all of the ring are regular, clean steps of this minute. A sum within
    # the window excludes pauses and unclean steps, which set higher bits.
    if len(words) >= FEWEST and min(words) and sum(words) <= WINDOW_NS:
        return _since_change(words)
    numbers: list[int] = []
    spent = 0
    for word in words:
        if len(numbers) >= FEWEST and (spent > WINDOW_NS or word >= _NOT_CLEAN):
            break
        if is_clean(word):
            numbers.append(word & LONGEST_NS)
        spent += gap_ns(word)
    return _since_change(numbers) if len(numbers) >= FEWEST else []


def _since_change(lengths: Sequence[int]) -> list[int]:
    """The newest of ``lengths`` if all are longer than nearly all before, or all shorter; else all.

    A median of 64 steps follows a change only when half of them are new: from 20 to 400 ms, that
    takes 13 s.
    """
    if sum(lengths) < _CHANGED_NS:
        return list(lengths)
    usual = median_ns(lengths) or 0.0
    if new := list(takewhile((UNEQUAL * usual).__lt__, lengths)):
        fewest, edge = _SLOWED_STEPS, min(new)
        odd = sum(length >= edge for length in lengths[len(new) :])
    elif new := list(takewhile((usual / UNEQUAL).__gt__, lengths)):
        fewest, edge = _FASTER_STEPS, max(new)
        odd = sum(length <= edge for length in lengths[len(new) :])
    else:
        return list(lengths)
    lasting = len(new) >= fewest and sum(new) >= _CHANGED_NS
    return new if lasting and odd <= _ODD * (len(lengths) - len(new)) else list(lengths)


def median_ns(lengths: Sequence[int]) -> float | None:
    if not lengths:
        return None
    ordered, middle = sorted(lengths), len(lengths) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return (ordered[middle - 1] + ordered[middle]) / 2


def level_ns(lengths: Sequence[int]) -> float | None:
    """The median, or the mean if the steps have several lengths in turn; ``None`` without steps.

    Batches of two sizes in turn have no usual length: the median is one of the two. Eight workers
    of a DataLoader hand out eight batches at once: seven steps do not wait, and the eighth does for
    most of the time. After a change of the speed, one half has hardly another length. The mean
    counts the two longest steps as the third longest, and the two shortest as the third shortest:
    they may be hiccups.
    """
    median, half = median_ns(lengths), len(lengths) // 2
    if median is None or half < _EXTREME * 2:
        return median
    usual = median / _LONG_TIMES, median * _LONG_TIMES
    for part in (lengths[:half], lengths[half:]):
        odd = [number for number in part if not usual[0] <= number <= usual[1]]
        if len(odd) <= 1 or not _several(len(odd), len(part), sum(odd), sum(part)):
            return median
    ordered = sorted(lengths)
    inner = ordered[_EXTREME:-_EXTREME]
    return (sum(inner) + _EXTREME * (inner[0] + inner[-1])) / len(lengths)


def _several(odd: int, count: int, odd_ns: float, total_ns: float) -> bool:
    """Whether ``odd`` of ``count`` steps, which have another length, are more than exceptions."""
    return odd > _ODD * count or (odd >= max(1, _RECURRING * count) and 2 * odd_ns > total_ns)


class Trend(NamedTuple):
    """``newest_ns``: the median of the newest ``steps``, if these are longer or shorter than those
    before; ``faster``: shorter."""

    newest_ns: float
    steps: int
    faster: bool


def unsettled(
    words: Sequence[int], count: int, total_ns: int, bins: Sequence[int] = ()
) -> Trend | bool:
    """Whether it is too early for the speed, and the trend that shows it; ``False``: it is not.

    The first steps of new code may be slower (caches fill, allocators grow), or faster (a
    DataLoader has prefetched, a GPU's queue is not full). Then the median of all is not the speed.

    Args:
        words: newest first. count, total_ns: of the clean steps since the last compile activity.
        bins: of these steps; empty if unknown.
    """
    if count >= _MANY and total_ns >= WINDOW_NS:
        return False
    few = _FEW if total_ns < WINDOW_NS else _FEW_OF_A_MINUTE
    early = count < few or total_ns < (_FEW_NS if count < _MANY else _MANY_NS)
    lengths = recent_lengths(words)
    if len(lengths) < _FEW:  # they take over 6 s each, or the speed has changed
        clean = [length_ns(word) for word in takewhile(is_clean, words)]
        lengths = clean[: 2 * _FEW]
    if len(lengths) < few:
        return early
    # the ring holds so few seconds of short steps that a trend in them may be a hiccup
    hiccup = total_ns >= _FEW_NS > sum(map(length_ns, words)) and count >= _MANY
    return (not hiccup and trend(lengths)) or _trend_since(bins, lengths) or early


def trend(lengths: Sequence[int]) -> Trend | None:
    """The trend of these steps, newest first; ``None`` if they have none.

    Compares the newer half with the older one, and the newest steps, of the last seconds, with all
    before. Steps of several lengths in turn, noise and single long steps are no trend: in nearly
    all pairs of an older and a newer step, the same one has to be longer.
    """
    unequal = UNEQUAL if len(lengths) >= _FEW else _UNEQUAL_FEW
    half, last = len(lengths) // 2, 1 + bisect_left(tuple(accumulate(lengths)), _CHANGED_NS)
    for steps in sorted({half, min(half, max(_NEWEST, last))}, reverse=True):
        newest, older = lengths[:steps], sorted(lengths[steps:])
        now, before = median_ns(newest) or 0.0, median_ns(older) or 0.0
        most = steps * len(older) * (_OF_PAIRS if steps >= _FEW_NEWEST else 1)
        faster = sum(len(older) - bisect_right(older, number) for number in newest) >= most
        slower = sum(bisect_left(older, number) for number in newest) >= most
        if (faster or slower) and max(now, before) > unequal * min(now, before):
            return Trend(now, steps, faster)
    return None


def _trend_since(bins: Sequence[int], lengths: Sequence[int]) -> Trend | None:
    """The trend from the steps in ``bins`` to ``lengths``, the newest of them: short steps may get
    faster for seconds, which the last 64 do not show."""
    count, now = sum(bins) - len(lengths), median_ns(lengths)
    if not now or count < RING:
        return None
    older = list(bins)
    for length in lengths:
        older[bisect_left(BOUNDS_NS, length)] -= 1
    before = quantile_ns(older, 0.5)
    if not before or max(now, before) <= UNEQUAL * min(now, before):
        return None
    at, most = bisect_left(BOUNDS_NS, now), _OF_PAIRS * count
    faster = sum(older[at + 1 :]) >= most
    return Trend(now, len(lengths), faster) if faster or sum(older[:at]) >= most else None


def departure(words: Sequence[int], level_ns: float, *, waits: bool = False) -> Trend | None:
    """The newest steps, if all of them are far from ``level_ns``, the claimed length of a step.

    The claim follows a sudden change within seconds, and is of a mixture meanwhile. A run of such
    steps that recurs, as while a DataLoader has batches left, is a part of the claim.

    Args:
        words: newest first. waits: the claim is a mean over launches and waits for the GPU, so that
            launches are always far below it.
    """
    lengths = [length_ns(word) for word in takewhile(is_clean, words)]
    for faster in (False,) if waits else (False, True):
        away = [level_ns / length if faster else length / level_ns for length in lengths]
        for fewest, edge, times in _DEPARTED:
            count = sum(1 for _ in takewhile(edge.__lt__, away))
            newest = median_ns(lengths[:count])
            if count < fewest or not newest or max(newest / level_ns, level_ns / newest) < times:
                continue
            runs = [sum(1 for _ in run) for far, run in groupby(away[count:], edge.__lt__) if far]
            recurs = sum(run >= count for run in runs) >= _RECURRING_RUNS
            if not recurs and sum(lengths[:count]) >= _DEPARTED_NS:
                return Trend(newest, count, faster)
    return None


def launch_ns(lengths: Sequence[int]) -> float | None:
    """The time that launches take: the median of an even number of ``lengths``.

    If every second step waits, the middle one of an odd number is of either kind.
    """
    odd = len(lengths) % 2 if len(lengths) > FEWEST else 0
    return median_ns(lengths[: len(lengths) - odd])


def vary(bins: Sequence[int], median: float, total_ns: float) -> bool:
    """Whether so many of the steps in ``bins`` have another length that none is the usual one.

    ``median``, ``total_ns``: of ``bins``, in nanoseconds.
    """
    low, high = (bisect_left(BOUNDS_NS, median * times) for times in (1 / _LONG_TIMES, _LONG_TIMES))
    count, usual = sum(bins), sum(bins[low : high + 1])
    return _several(count - usual, count, total_ns - usual * median, total_ns)


def queued_ns(
    lengths: Sequence[int],
    bins: Sequence[int],
    count: int,
    total_ns: int,
    *,
    queue_was_empty: bool = False,
    between_ns: float | None = None,
) -> float | None:
    """The recent length of a step whose work a GPU queues, in wall-clock time.

    Such a step ends when its kernels are launched. A later one that synchronizes, or finds the
    queue full, waits, so the median is the time of a launch. If several of ``lengths``
    synchronized, this is the mean from the first to the last of them. Else it is ``between_ns``,
    if known. Else it is the mean of ``count`` steps, if a few in ``bins`` waited, or about as large
    a share as of ``lengths``: these show the same loop. A mean close to the median is the median.
    If the speed has changed since, only the waits count of those steps.

    Args:
        lengths: from :func:`recent_lengths`. bins: of all clean steps of the run or of the last
        seconds. count, total_ns: those of them in which the present code ran; a count of 0 is
        unknown. queue_was_empty: before the first of these.
        between_ns: the mean between synchronizations that earlier polls found.
    """
    launch = launch_ns(lengths)
    if launch is None:
        return None
    long = [at for at, length in enumerate(lengths) if length > _LONG_TIMES * launch]
    mean = _between_waits(lengths, long) or between_ns
    few = _TIMES_SHARE * len(long) / len(lengths) or min(_FEW_LONG, 1 / len(lengths))
    waited = waits(bins, launch) - (sum(bins) - count)  # if all steps of earlier code were as long
    if mean is None and count >= len(lengths) and waited <= few * count:
        queued = _queued_steps(lengths, long, count) if queue_was_empty else 0
        if queued:
            mean = (total_ns - sum(lengths[:queued])) / (count - queued)
        else:
            mean = _at_level(lengths, launch, bins, count, total_ns)
    elif mean is None:
        mean = sum(lengths) / len(lengths) if len(long) > 1 else launch
    return mean if mean > UNEQUAL * launch else launch


def _at_level(
    lengths: Sequence[int], launch: float, bins: Sequence[int], count: int, total_ns: int
) -> float:
    """The mean of ``count`` steps, those that did not wait as long as those of ``lengths`` are now.

    After a change of the speed, steps from before it are not what the GPU needs for a step.
    """
    waited, first = waits(bins, launch), bisect_left(BOUNDS_NS, _LONG_TIMES * launch) + 1
    if waited >= count or (waited and sum(bins) > count):
        return total_ns / count  # some may be of earlier code
    short = [length for length in lengths if length <= _LONG_TIMES * launch]
    now, others = sum(short) / len(short), count - waited
    ends = ((BOUNDS_NS[min(at, len(BOUNDS_NS) - 1)], bins[at]) for at in range(first, len(bins)))
    waited_ns: float = (1 - HALF_A_BIN) * sum(end * number for end, number in ends)
    before, error = (total_ns - waited_ns) / others, HALF_A_BIN * waited_ns / others
    if before - error <= UNEQUAL * now and now <= UNEQUAL * (before + error):
        return total_ns / count
    return (waited_ns + others * now) / count


def _between_waits(lengths: Sequence[int], long: Sequence[int]) -> float | None:
    """The mean from the first to the last step that synchronized; ``None`` if unknown.

    Such a step leaves nothing queued, and is the longest. A step that finds the queue full leaves
    it full. So from one kind to the other, the GPU works for fewer or more steps than are launched.
    The steps have to be at regular distances: two hiccups in a row are no period.
    """
    if not long:
        return None
    longest = max(map(lengths.__getitem__, long))
    alike = [at for at in long if 2 * lengths[at] > longest]
    apart = [after - at for at, after in pairwise(alike)]
    if max(alike[0], len(lengths) - 1 - alike[-1]) > max(apart, default=0):
        return None
    return sum(lengths[alike[0] : alike[-1]]) / (alike[-1] - alike[0])


def last_synchronized(lengths: Sequence[int]) -> int | None:
    """The index of the newest of ``lengths`` that synchronized; ``None`` if unknown.

    It is among the longest, and takes at least twice the mean. A step that finds the queue full
    takes as long as the GPU needs for a step, and so do the steps around it; around one that
    synchronized they are launches. So the very newest step is not known yet.
    """
    longest = max(lengths, default=0)
    if longest * len(lengths) < _SYNCHRONIZED_TIMES * sum(lengths):
        return None
    for at in range(1, len(lengths) - 1):
        if 2 * lengths[at] > longest:
            return at if 2 * max(lengths[at - 1], lengths[at + 1]) < lengths[at] else None
    return None


def _queued_steps(lengths: Sequence[int], long: Sequence[int], count: int) -> int:
    """The number of steps since the last one that synchronized; 0 if unknown.

    After two whole periods they are at most a third of the ``count`` steps of the run. If they are
    more, the long step may have been a hiccup at the begin of the run.
    """
    since = max(long, key=lengths.__getitem__, default=0)
    return since if 3 * since <= count else 0


def waits(bins: Sequence[int], median: float) -> int:
    """The number of steps that waited for a GPU; ``median``: the time that launches take."""
    return sum(bins[bisect_left(BOUNDS_NS, _LONG_TIMES * median) + 1 :])


def marks_ns(words: Sequence[int], last_step_ns: int) -> Iterator[tuple[int, int]]:
    """The mark of each step, with its word; newest first. Pauses count in whole seconds."""
    at = last_step_ns
    for word in words:
        yield at, word
        at -= gap_ns(word)
