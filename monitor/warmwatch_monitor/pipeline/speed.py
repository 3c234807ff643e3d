"""Change-point detector: has a training become slower, when, and compared with what? Pure, bounded.

A record holds the last 64 step lengths. :func:`follow` adds those that are new at each poll to
*blocks* of about two seconds, each with the median length of its clean steps. The *reference* is
the fastest sustained level of this warm-up, and a block is slow at SLOWER_TIMES the reference.

A rank is slower once the last blocks have all been slow for SUSTAINED_SECONDS and 10 steps, and
chance would not bring so many in a row. How likely chance is depends on the earlier blocks: the
more of them were as slow as the fastest of these, the longer the run has to be. So a training whose
steps vary raises no alarm, and one that starts fast or rough is still followed. The rank is no
longer slower when three blocks in a row are not slow. The state is of fixed size.

The steps of a training on GPUs only launch kernels, and some wait for all of them. So the length
of its blocks is the mean of all clean steps between two polls, not the median of those seen.

A monitor that comes late, or a command without a daemon, has the histogram of all steps too:
:func:`first_look` finds the fast level in it, unless something has compiled again since. A slower
level that is older than the last 64 steps then has a start only if the journal has it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch.shared.record import BOUNDS_NS, Header, Slot, StepCounts
from warmwatch.shared.record.recent import gap_ns, is_clean
from warmwatch_monitor.model import LongStep, Slower, SlowerPeriod
from warmwatch_monitor.pipeline.causes import Surroundings, causes
from warmwatch_monitor.pipeline.slot_figures import CleanSteps

SLOWER_TIMES = 1.5
_BLOCK_NS = 2 * 10**9
# As much as still finds a level that lasts 30 s within them: a block takes 2 to 4 s if steps take
# at most 2 s, and the one in which the change falls does not count.
SUSTAINED_SECONDS, SUSTAINED_STEPS = 22.0, 10
_MOST_LENGTHS = 128  # of a block; if it has more steps, the last ones represent it
# A level is sustained by so many steps in so many seconds; either pair suffices.
_SUSTAINED = ((32, 3.0), (SUSTAINED_STEPS, 30.0))
_LASTLY_SECONDS = 15.0  # that the record's last steps take; fewer may be a burst of many
_WINDOW = 32  # blocks; a level of long steps needs many
_CHANCE = 1e-8  # probability that so many slow blocks in a row are chance
_LATELY = 5  # blocks whose median is the speed of a slower run
_RECOVERED = 3  # blocks in a row that are not slow
_FEW_FAST_SHARE, _FEW_FAST = 0.05, 32  # of the histogram's steps, and the least number of them
_MOST_PERIODS = 16


class Level(Struct, frozen=True):
    """A block: its first step, its number of steps and seconds, their median, when it ended.

    With GPUs ``median`` is the mean of its clean steps.
    """

    first: int
    steps: int
    seconds: float
    median: float
    ended_ns: int

    @property
    def began_ns(self) -> int:
        return self.ended_ns - round(self.seconds * 1e9)


class Period(Struct, frozen=True, kw_only=True):
    """A time in which a rank was slower.

    Attributes:
        began_ns, since_step: the start, and the last step before it; 0 and ``None`` if not known.
        ended_ns, until_step: 0 while it lasts. before: the reference. steps, sum_seconds: of its
        blocks; each step of a block counts with the block's median. causes: the last known ones.
    """

    began_ns: int
    since_step: int | None
    before: float
    steps: int
    sum_seconds: float
    ended_ns: int = 0
    until_step: int = 0
    causes: tuple[str, ...] = ()


class Speed(Struct, frozen=True, kw_only=True):
    """The detector's state between two polls.

    Attributes:
        steps, last_ns: as of the last poll, with the time of the last step. activity: number of
        activities that had begun by then. limits: number of fallbacks and graph breaks.
        lengths, gap_ns, first, count: of the block that is being filled. levels: the last complete
        blocks; in a slower period, only that period's. earlier: number of blocks before these and
        outside of slower periods, by ``_bin`` of their median. reference: seconds a step.
        fast: number of blocks in a row that were not slow. since: the first step that was seen.
        queued: the clean steps before the block that is being filled, of a training on GPUs.
        periods: the last ones; the last of them is open while the rank is slower.
        before: the surroundings while it was as fast as usual. usual: at the last block. now: at
        the last poll.
    """

    steps: int = 0
    last_ns: int = 0
    activity: int = -1
    limits: int = 0
    lengths: tuple[int, ...] = ()
    gap_ns: int = 0
    first: int = 0
    count: int = 0
    levels: tuple[Level, ...] = ()
    earlier: Mapping[int, int] = {}
    reference: float | None = None
    fast: int = 0
    since: int = 0
    queued: CleanSteps | None = None
    periods: tuple[Period, ...] = ()
    before: Surroundings | None = None
    usual: Surroundings | None = None
    now: Surroundings | None = None

    @property
    def slower(self) -> bool:
        return bool(self.periods) and not self.periods[-1].ended_ns


def follow(
    known: Speed | None,
    slot: Slot,
    now: Surroundings | None = None,
    slowed: LongStep | None = None,
) -> Speed:
    """``known`` with the new steps of ``slot``; ``None`` at the first poll.

    ``now``: ``None`` if the process has ended. ``slowed``: see ``RecordReading``.
    """
    speed = replace(_followed(known, slot), last_ns=slot.steps.last_step_ns)
    if slowed is not None:
        speed = _with_start(speed, slot, slowed)
    if now is None:
        return speed
    if speed.slower:
        return _with_causes(replace(speed, now=now))
    if _is_slow(speed) or (known and speed.levels == known.levels):
        return replace(speed, now=now)
    # of the block before: the one in progress may be slow already
    return replace(speed, now=now, before=speed.usual, usual=now)


def _followed(known: Speed | None, slot: Slot) -> Speed:
    if known is None or slot.steps.steps < known.steps:
        return first_look(slot)
    if slot.identity.gpus and known.queued is None:
        return first_look(slot)  # it uses them from now on
    known = _of_this_warmup(known, slot)
    if known.queued is not None:
        return _with_queued(known, known.queued, slot)
    new = min(slot.steps.steps - known.steps, len(slot.recent))
    if not new:
        return known
    missed = slot.steps.steps - known.steps - new
    # assume that missed steps took as long as those in the ring
    return _with_steps(known, slot.recent[:new][::-1], slot.steps, 1 + missed / new)


def slower(speed: Speed | None, recent_seconds: float | None) -> Slower | None:
    """How a rank is slower now than it was; ``recent_seconds``: its recent step length."""
    if speed is None or not speed.slower or not speed.reference or not recent_seconds:
        return None
    # the recent steps of a run with long steps are mostly those from before the change
    lately = sorted(one.median for one in speed.levels[-_LATELY:])
    seconds = lately[len(lately) // 2] if lately else recent_seconds
    ratio = seconds / speed.reference
    if ratio < SLOWER_TIMES or (speed.fast and recent_seconds < SLOWER_TIMES * speed.reference):
        return None
    return Slower(
        seconds=seconds,
        ratio=ratio,
        before=speed.reference,
        since_step=speed.periods[-1].since_step,
        causes=tuple(causes(speed.before, speed.now)) if speed.now else (),
    )


def slower_periods(speed: Speed, header: Header, *, ended: bool) -> tuple[SlowerPeriod, ...]:
    """The last periods in which a rank was slower; ``ended``: the rank has ended."""
    return tuple(
        SlowerPeriod(
            began_at=header.epoch_seconds(one.began_ns) if one.began_ns else None,
            ended_at=header.epoch_seconds(at) if at else None,
            since_step=one.since_step,
            until_step=one.until_step if one.ended_ns else speed.steps if ended else None,
            seconds=one.sum_seconds / one.steps,
            before=one.before,
            ratio=one.sum_seconds / one.steps / one.before,
            causes=one.causes,
        )
        for one in speed.periods
        for at in (one.ended_ns or (speed.last_ns if ended else 0),)
    )


def first_look(slot: Slot) -> Speed:
    """The state for a record that was not seen before, from its histogram and its last steps."""
    blank = Speed(
        steps=slot.steps.steps,
        last_ns=slot.steps.last_step_ns,
        activity=slot.compile.begun,
        limits=_limits(slot),
    )
    if slot.identity.gpus:
        return replace(blank, since=slot.steps.steps + 1, queued=CleanSteps.of(slot))
    if slot.compile.active_since_ns:
        return blank
    words = list(takewhile(is_clean, slot.recent))[::-1]
    blank = replace(blank, steps=blank.steps - len(words), since=blank.steps - len(words) + 1)
    reference = _level_before(slot)
    if reference is None:
        return _with_steps(blank, words, slot.steps, 1)
    speed = replace(blank, reference=reference, earlier=_blocks(slot.clean_bins, words))
    speed = _with_steps(speed, words, slot.steps, 1)
    if speed.periods or not _was_slow(slot, reference):
        return speed
    lengths = record.recent_lengths(slot.recent)
    seconds = len(lengths) * (record.median_ns(lengths) or 0.0) / 1e9
    period = Period(
        began_ns=0, since_step=None, before=reference, steps=len(lengths), sum_seconds=seconds
    )
    return replace(speed, periods=(period,))


def _with_start(speed: Speed, slot: Slot, slowed: LongStep) -> Speed:
    """With the start from the journal, if no poll saw it and all steps since were slow."""
    if not speed.slower or speed.periods[-1].since_step is not None:
        return speed
    period, steps = speed.periods[-1], slot.steps.steps + 1 - slowed.step
    slow = sum(slot.clean_bins[bisect_left(BOUNDS_NS, SLOWER_TIMES * period.before * 1e9) :])
    usual = slowed.usual_seconds < SLOWER_TIMES * period.before < slowed.seconds
    if not usual or slow < (1 - _FEW_FAST_SHARE) * steps:
        return speed
    began = slowed.at_ns - round(slowed.seconds * 1e9)
    start = replace(period, began_ns=began, since_step=slowed.step - 1)
    return replace(speed, periods=(*speed.periods[:-1], start))


def _level_before(slot: Slot) -> float | None:
    """The fast level in the histogram, in seconds; ``None`` if it cannot be found there."""
    recent = slot.recent_step_ns
    # The bins cover the whole run: after a second warm-up they mix the steps of both.
    if recent is None or slot.compile.warmups > 1:
        return None
    level = _fast_level(slot.clean_bins, recent)
    return None if level is None else level / 1e9


def _was_slow(slot: Slot, reference: float) -> bool:
    """Whether the last steps were slow for _LASTLY_SECONDS, and enough of all for a level."""
    lengths = record.recent_lengths(slot.recent)
    middle = reference * 1e9 * (1 + SLOWER_TIMES) / 2
    edge = bisect_left(BOUNDS_NS, middle)
    slow = slot.clean_bins[edge:]
    seconds = sum(
        count * BOUNDS_NS[min(edge + at, len(BOUNDS_NS) - 1)] for at, count in enumerate(slow)
    )
    alike = sum(length >= middle for length in lengths)
    return (
        sum(slow) >= SUSTAINED_STEPS
        and seconds >= SUSTAINED_SECONDS * 1e9
        and (record.median_ns(lengths) or 0.0) >= SLOWER_TIMES * reference * 1e9
        and len(lengths) >= SUSTAINED_STEPS
        and sum(lengths) >= _LASTLY_SECONDS * 1e9
        and alike >= (1 - _FEW_FAST_SHARE) * len(lengths)
    )


def _blocks(bins: Sequence[int], but: Sequence[int]) -> Mapping[int, int]:
    """The blocks of the steps in ``bins``, by ``_bin``, without the steps ``but``.

    Steps of one length are in one block as far as possible, which assumes the longest runs.
    """
    counts: dict[int, int] = {}
    left = list(bins)
    for word in but:
        left[bisect_left(BOUNDS_NS, record.length_ns(word))] -= 1
    for at, count in enumerate(left):
        ns = BOUNDS_NS[min(at, len(BOUNDS_NS) - 1)]
        if blocks := math.ceil(max(0, count) * min(1.0, ns / _BLOCK_NS)):
            counts[_bin(ns / 1e9)] = counts.get(_bin(ns / 1e9), 0) + blocks
    return counts


def _fast_level(bins: Sequence[int], recent_ns: float) -> float | None:
    """The median of the steps far faster than ``recent_ns`` if they are a level of their own; else
    that of all steps.
    """
    total, edge = sum(bins), bisect_left(BOUNDS_NS, recent_ns / SLOWER_TIMES)
    fast = list(bins[:edge])
    if sum(fast) >= max(_FEW_FAST, _FEW_FAST_SHARE * total):
        level = record.quantile_ns(fast + [0] * (len(bins) - edge), 0.5) or 0.0
        between = math.sqrt(level * recent_ns)
        # the fast end of steps that vary has more steps next to it, at the slow side
        if _around(bins, level) > 2 * _around(bins, between):
            return level
    return record.quantile_ns(bins, 0.5) if total >= _FEW_FAST else None


def _around(bins: Sequence[int], ns: float) -> int:
    """The number of steps within 10 % of ``ns``."""
    return sum(bins[bisect_left(BOUNDS_NS, 0.9 * ns) : bisect_left(BOUNDS_NS, 1.1 * ns) + 1])


def _limits(slot: Slot) -> int:
    return slot.compile.fallbacks + slot.compile.graph_breaks


def _of_this_warmup(known: Speed, slot: Slot) -> Speed:
    """Start over after compile activity, unless it made code fall back to eager.

    A fallback is a reason to be slower, so the reference stays.
    """
    begun, limits = slot.compile.begun, _limits(slot)
    if begun == known.activity:
        return known
    if limits > known.limits and known.reference is not None:
        return replace(known, activity=begun, limits=limits, lengths=(), gap_ns=0, count=0)
    periods = _closed(known.periods, known.last_ns, known.steps)
    queued = CleanSteps.of(slot) if known.queued else None
    return Speed(steps=known.steps, activity=begun, limits=limits, periods=periods, queued=queued)


def _with_queued(speed: Speed, before: CleanSteps, slot: Slot) -> Speed:
    """With the steps since the last poll of a training on GPUs, whose blocks end at polls."""
    now, steps = CleanSteps.of(slot), slot.steps.steps
    if not speed.count:
        speed = replace(speed, first=speed.steps + 1)
    speed = replace(speed, steps=steps, count=steps - speed.first + 1)
    if now.at_ns - before.at_ns < _BLOCK_NS:
        return speed
    since = now.since(before)
    if any(since.bins):
        spent = (now.at_ns - before.at_ns) / 1e9
        mean = since.mean_ns() / 1e9
        speed = _with_level(speed, Level(speed.first, speed.count, spent, mean, now.at_ns))
    return replace(speed, count=0, queued=now)


def _with_steps(speed: Speed, words: Sequence[int], marks: StepCounts, weight: float) -> Speed:
    """With more steps, oldest first; the last one is step number ``marks.steps``."""
    lengths, spent = list(speed.lengths), speed.gap_ns
    first, count = speed.first, speed.count
    at = marks.last_step_ns - sum(map(gap_ns, words))
    for number, word in enumerate(words, marks.steps + 1 - len(words)):
        first = first if count else number
        count += 1
        at += gap_ns(word)
        spent += round(gap_ns(word) * weight)
        if is_clean(word):
            lengths.append(record.length_ns(word))
        if spent >= _BLOCK_NS:
            median = record.median_ns(lengths)
            if median is not None:
                steps = round(count * weight)
                speed = _with_level(speed, Level(first, steps, spent / 1e9, median / 1e9, at))
            lengths, spent, count = [], 0, 0
    return replace(
        speed,
        steps=marks.steps,
        lengths=tuple(lengths[-_MOST_LENGTHS:]),
        gap_ns=spent,
        first=first,
        count=count,
    )


def _with_level(speed: Speed, level: Level) -> Speed:
    levels = (*speed.levels, level)
    speed = replace(
        speed,
        levels=levels[-_WINDOW:],
        earlier=speed.earlier if speed.slower else _counted(speed.earlier, levels[:-_WINDOW]),
        reference=_reference(speed.reference, levels[-_WINDOW:]),
    )
    if speed.slower:
        return _still_slower(speed, level) if _is_slow(speed) else _faster(speed)
    run = _lasting_run(speed)
    if not run:
        return speed
    seen = run[0].first > speed.since
    period = _with_block(
        Period(
            began_ns=run[0].began_ns if seen else 0,
            since_step=run[0].first - 1 if seen else None,
            before=speed.reference or 0.0,
            steps=0,
            sum_seconds=0.0,
        ),
        run,
    )
    return replace(
        speed,
        levels=run,
        earlier=_counted(speed.earlier, speed.levels[: -len(run)]),
        fast=0,
        periods=(*speed.periods, period)[-_MOST_PERIODS:],
    )


def _is_slow(speed: Speed) -> bool:
    """Whether the last block is slow."""
    if not speed.levels or speed.reference is None:
        return False
    return speed.levels[-1].median >= SLOWER_TIMES * speed.reference


def _still_slower(speed: Speed, level: Level) -> Speed:
    periods = (*speed.periods[:-1], _with_block(speed.periods[-1], [level]))
    return replace(speed, fast=0, periods=periods)


def _faster(speed: Speed) -> Speed:
    """A block of a slower rank that is not slow: after several of them it has recovered."""
    fast = speed.fast + 1
    if fast < _RECOVERED:
        return replace(speed, fast=fast)
    recovered = speed.levels[-fast:]
    began, first = recovered[0].began_ns, recovered[0].first
    return replace(
        speed, fast=0, levels=recovered, periods=_closed(speed.periods, began, first - 1)
    )


def _closed(periods: tuple[Period, ...], at_ns: int, step: int) -> tuple[Period, ...]:
    if not periods or periods[-1].ended_ns:
        return periods
    return (*periods[:-1], replace(periods[-1], ended_ns=at_ns, until_step=step))


def _with_block(period: Period, blocks: Sequence[Level]) -> Period:
    return replace(
        period,
        steps=period.steps + sum(one.steps for one in blocks),
        sum_seconds=period.sum_seconds + sum(one.steps * one.median for one in blocks),
    )


def _with_causes(speed: Speed) -> Speed:
    """With the causes in its open period; those that no longer hold stay if no other does."""
    known = tuple(causes(speed.before, speed.now)) if speed.now else ()
    if not known:
        return speed
    return replace(speed, periods=(*speed.periods[:-1], replace(speed.periods[-1], causes=known)))


def _lasting_run(speed: Speed) -> tuple[Level, ...]:
    """The longest run of slow blocks up to the last one that is no chance; empty if there is none.

    A rough series has runs of slow blocks anyway. So a run is compared with the earlier blocks that
    were at least as slow as its fastest one: a run far above them needs to be no longer than usual.
    """
    levels, found = speed.levels, 0
    if not _is_slow(speed):
        return ()
    slow = SLOWER_TIMES * (speed.reference or math.inf)
    earlier = dict(_counted(speed.earlier, levels))
    fastest, seconds, steps = math.inf, 0.0, 0
    for length, level in enumerate(reversed(levels), 1):
        if level.median < slow:
            break
        fastest = min(fastest, level.median)
        seconds, steps = seconds + level.seconds, steps + level.steps
        earlier[_bin(level.median)] -= 1
        lasting = seconds >= SUSTAINED_SECONDS and steps >= SUSTAINED_STEPS
        if lasting and length >= _no_chance(earlier, fastest):
            found = length
    return levels[-found:] if found else ()


def _no_chance(earlier: Mapping[int, int], seconds: float) -> int:
    """The number of blocks in a row of ``seconds`` a step or more that is no chance."""
    edge = _bin(seconds)
    odd = sum(count for at, count in earlier.items() if at >= edge)
    share = (odd + 1) / (sum(earlier.values()) + 8)
    return math.ceil(math.log(_CHANCE) / math.log(min(share, 0.9)))


def _bin(seconds: float) -> int:
    """The bin of a step length; eight bins for each doubling."""
    return math.floor(8 * math.log2(max(seconds, 1e-6)))


def _counted(blocks: Mapping[int, int], more: Iterable[Level]) -> Mapping[int, int]:
    counts = dict(blocks)
    for one in more:
        counts[_bin(one.median)] = counts.get(_bin(one.median), 0) + 1
    return counts


def _reference(known: float | None, levels: Sequence[Level]) -> float | None:
    """The fastest level that the last blocks sustain, if it is faster than the known one."""
    found = known
    for fewest, seconds in _SUSTAINED:
        window: list[Level] = []
        for level in reversed(levels):
            window.append(level)
            if (
                sum(one.steps for one in window) >= fewest
                and sum(one.seconds for one in window) >= seconds
            ):
                ordered = sorted(one.median for one in window)
                middle = ordered[len(ordered) // 2]
                found = middle if found is None else min(found, middle)
                break
    return found
