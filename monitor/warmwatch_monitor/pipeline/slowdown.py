"""Change-point detector: has a training become slower, when, and compared with what? Pure, bounded.

A record holds the last 64 step lengths. :func:`follow` adds those that are new at each poll to
*blocks* of about two seconds, each with the median length of its clean steps. The *reference* is
the fastest sustained level of this warm-up, and a block is slow at SLOWER_TIMES the reference.

A rank is slower once the last blocks have all been slow for SUSTAINED_SECONDS and 10 steps, and a
row of so many slow blocks is unlikely by chance. That depends on the earlier blocks: the more of
them were as slow as the fastest block of the row, the longer the row must be. So a training whose
steps vary raises no alarm, and one whose first steps are fast or vary is still followed. The rank
is no longer slower when three blocks in a row are not slow. The state is of fixed size.

The steps of a training on GPUs only launch kernels, and some wait for all of them. So the length
of its blocks is the mean of all clean steps between two polls, not the median of those seen.

A monitor that comes late, or a command without a daemon, has the histogram of all steps too:
:func:`first_poll` finds the fast level in it, unless something has compiled again since. A slower
level that is older than the last 64 steps then has a start only if the journal has it.

Below: the state, a poll (:func:`follow`), the blocks that its steps fill, what a complete block
changes, the first poll, the public results.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch.shared.record import Header, Slot, StepCounts
from warmwatch.shared.record.recent import gap_ns, is_clean
from warmwatch_monitor.model import LongStep, Slower, SlowerPeriod
from warmwatch_monitor.model.causes import Surroundings, causes_since
from warmwatch_monitor.pipeline.clean_steps import (
    FEW_SHARE,
    SLOWER_TIMES,
    CleanSteps,
    blocks_in,
    level_before,
    slow_in,
)

_BLOCK_NS = 2 * 10**9
# The most with which a level that lasts 30 s is still found: a block takes 2 to 4 s if steps take
# at most 2 s, and the block that contains the change does not count.
SUSTAINED_SECONDS, SUSTAINED_STEPS = 22.0, 10
_ENOUGH = record.RING // 4  # new steps: the ring may lose the oldest before the next poll
_MOST_LENGTHS = 128  # of a block; if it has more steps, the last ones represent it
# The reference: a level is sustained by so many steps in so many seconds; either pair suffices.
_SUSTAINED = ((32, 3.0), (SUSTAINED_STEPS, 30.0))
_LAST_STEPS_SECONDS = 15.0  # the least that the record's last steps take; fewer may be a burst
_WINDOW = 32  # blocks; a level of long steps needs many
_CHANCE = 1e-8  # probability that so many slow blocks in a row are chance
_RECOVERED = 3  # blocks in a row that are not slow
_MOST_PERIODS = 16


class Block(Struct, frozen=True):
    """Steps of about two seconds.

    ``length``: the median of the clean ones in seconds, with GPUs their ``mean``. ``seconds``: from
    the step before ``first`` to the last one, with pauses.
    """

    first: int
    steps: int
    seconds: float
    length: float
    mean: float
    ended_ns: int

    @property
    def began_ns(self) -> int:
        return self.ended_ns - round(self.seconds * 1e9)


class Period(Struct, frozen=True, kw_only=True):
    """A time in which a rank was slower.

    Attributes:
        began_ns, since_step: the start, and the last step before it; 0 and ``None`` if not known.
        ended_ns, until_step: 0 while it lasts. before: the reference. steps, sum_seconds: of its
        blocks; each step counts with the mean of its block. causes: the last known ones; ``None``
        if not measured.
    """

    before: float
    began_ns: int = 0
    since_step: int | None = None
    steps: int = 0
    sum_seconds: float = 0.0
    ended_ns: int = 0
    until_step: int = 0
    causes: tuple[str, ...] | None = None


class Speed(Struct, frozen=True, kw_only=True):
    """The detector's state between two polls.

    Attributes:
        steps, last_ns: as of the last poll, with the time of the last step. since: the first step
        that a poll saw. activity: number of activities that had begun by then. limits: number of
        fallbacks and graph breaks.
        first, count, gap_ns, lengths: of the block that is being filled: its first step, number of
        steps, time, and lengths of the clean ones. queued: the clean steps before it, of a training
        on GPUs.
        blocks: the last complete ones; in a slower period, only that period's. earlier: number of
        blocks before these and outside of slower periods, by ``_bin`` of their length.
        reference: seconds a step. fast: number of blocks in a row that were not slow.
        periods: the last ones; the last of them is open while the rank is slower.
        before: the surroundings while it was as fast as usual. usual: at the last block. now: at
        the last poll while it is slower or the last block is slow. causes: the last known ones
        since then; a period has those from before it was found too.
    """

    steps: int = 0
    last_ns: int = 0
    since: int = 0
    activity: int = -1
    limits: int = 0
    first: int = 0
    count: int = 0
    gap_ns: int = 0
    lengths: tuple[int, ...] = ()
    queued: CleanSteps | None = None
    blocks: tuple[Block, ...] = ()
    earlier: Mapping[int, int] = {}
    reference: float | None = None
    fast: int = 0
    periods: tuple[Period, ...] = ()
    before: Surroundings | None = None
    usual: Surroundings | None = None
    now: Surroundings | None = None
    causes: tuple[str, ...] | None = None

    @property
    def slower(self) -> bool:
        return bool(self.periods) and not self.periods[-1].ended_ns

    @property
    def is_slow(self) -> bool:
        """Whether the last block is slow."""
        slow = SLOWER_TIMES * (self.reference or math.inf)
        return bool(self.blocks) and self.blocks[-1].length >= slow


def follow(
    known: Speed | None,
    slot: Slot,
    read_surroundings: Callable[[], Surroundings] | None = None,
    slowed: LongStep | None = None,
) -> Speed:
    """``known`` with the new steps of ``slot``; ``None`` at the first poll.

    ``read_surroundings``: ``None`` if the process has ended. ``slowed``: see ``RecordReading``.
    """
    speed = _with_start(_followed(known, slot), slot, slowed)
    if speed.slower or speed.is_slow:
        if read_surroundings is not None:  # causes that no longer hold stay if no other does
            now = read_surroundings()
            found = _causes(speed.before, now)
            speed = replace(speed, now=now, causes=found or speed.causes or found)
        return _with_period(speed, causes=speed.causes) if speed.slower else speed
    if read_surroundings is None or (known and speed.blocks == known.blocks):
        return speed
    # of the block before: the one in progress may be slow already
    return replace(speed, before=speed.usual, usual=read_surroundings(), causes=())


def _followed(known: Speed | None, slot: Slot) -> Speed:
    if known is None or slot.steps.steps < known.steps:
        return first_poll(slot)
    if slot.identity.gpus and known.queued is None:
        return first_poll(slot)  # it uses them from now on
    known = _of_this_warmup(known, slot)
    if known.queued is not None:
        return _with_queued(known, known.queued, slot)
    new = min(slot.steps.steps - known.steps, len(slot.recent))
    complete = known.gap_ns + slot.steps.last_step_ns - known.last_ns >= _BLOCK_NS
    if not new or not (complete or new >= _ENOUGH or known.slower):
        return known  # the ring still has them when the block is complete
    missed = slot.steps.steps - known.steps - new
    # assume that missed steps took as long as those in the ring
    return _with_steps(known, slot.recent[:new][::-1], slot.steps, 1 + missed / new)


def _of_this_warmup(known: Speed, slot: Slot) -> Speed:
    """Start over after compile activity, unless it made code fall back to eager.

    A fallback is a reason to be slower, so the reference stays.
    """
    begun, limits = slot.compile.begun, _limits(slot)
    if begun == known.activity:
        return known
    # no poll has seen which of the steps until now came before the activity
    steps, last_ns = slot.steps.steps, slot.steps.last_step_ns
    if limits > known.limits and known.reference is not None:
        return replace(
            known,
            steps=steps,
            last_ns=last_ns,
            activity=begun,
            limits=limits,
            lengths=(),
            gap_ns=0,
            count=0,
        )
    periods = _over(known).periods
    queued = CleanSteps.of(slot) if known.queued else None
    return Speed(
        steps=steps,
        last_ns=last_ns,
        activity=begun,
        limits=limits,
        periods=periods,
        queued=queued,
    )


def _limits(slot: Slot) -> int:
    return slot.compile.fallbacks + slot.compile.graph_breaks


def _with_steps(speed: Speed, words: Sequence[int], marks: StepCounts, weight: float) -> Speed:
    """With more steps, oldest first; the last one is step number ``marks.steps``."""
    lengths, spent = list(speed.lengths), speed.gap_ns
    first, count = speed.first, speed.count
    gaps = [gap_ns(word) for word in words]
    at, number = marks.last_step_ns - sum(gaps), marks.steps - len(words)
    for word, gap in zip(words, gaps, strict=True):
        number += 1
        first = first if count else number
        count += 1
        at += gap
        spent += round(gap * weight)
        if is_clean(word):
            lengths.append(record.length_ns(word))
        if spent >= _BLOCK_NS:
            median = record.median_ns(lengths)
            if median is not None:
                steps, mean = round(count * weight), sum(lengths) / len(lengths)
                block = Block(first, steps, spent / 1e9, median / 1e9, mean / 1e9, at)
                speed = _with_block(speed, block)
            lengths, spent, count = [], 0, 0
    return replace(
        speed,
        steps=marks.steps,
        last_ns=marks.last_step_ns,
        lengths=tuple(lengths[-_MOST_LENGTHS:]),
        gap_ns=spent,
        first=first,
        count=count,
    )


def _with_queued(speed: Speed, before: CleanSteps, slot: Slot) -> Speed:
    """With the steps since the last poll of a training on GPUs, whose blocks end at polls."""
    if slot.steps.last_step_ns - before.at_ns < _BLOCK_NS and not speed.slower:
        return speed
    now, steps = CleanSteps.of(slot), slot.steps.steps
    first = speed.first if speed.count else speed.steps + 1
    count = steps + 1 - first
    speed = replace(speed, steps=steps, last_ns=now.at_ns, first=first, count=count)
    if now.at_ns - before.at_ns < _BLOCK_NS:
        return speed
    since = now.since(before)
    if any(since.bins):
        spent, mean = (now.at_ns - before.at_ns) / 1e9, since.mean_ns() / 1e9
        speed = _with_block(speed, Block(first, speed.count, spent, mean, mean, now.at_ns))
    return replace(speed, count=0, queued=now)


def _with_block(speed: Speed, block: Block) -> Speed:
    """With a complete block, which may begin, continue or end a slower period."""
    blocks = (*speed.blocks, block)[-_WINDOW:]
    reference = _reference(speed.reference, blocks)
    if speed.slower:
        speed = replace(speed, blocks=blocks, reference=reference)
        return _still_slower(speed, *blocks[-1 - speed.fast :]) if speed.is_slow else _faster(speed)
    earlier = _counted(speed.earlier, speed.blocks[: 1 - _WINDOW])
    speed = replace(speed, blocks=blocks, reference=reference, earlier=earlier)
    run = _lasting_run(speed)
    if not run:
        return speed
    period = Period(before=speed.reference or 0.0)
    if run[0].first > speed.since:  # else it began before the first poll
        period = replace(period, began_ns=run[0].began_ns, since_step=run[0].first - 1)
    speed = replace(
        speed,
        blocks=run,
        earlier=_counted(earlier, blocks[: -len(run)]),
        periods=(*speed.periods, period)[-_MOST_PERIODS:],
    )
    return _still_slower(speed, *run)


def _still_slower(speed: Speed, *more: Block) -> Speed:
    """With more blocks in the open period: slow ones, and fast ones without a recovery."""
    period = speed.periods[-1]
    steps = period.steps + sum(one.steps for one in more)
    seconds = period.sum_seconds + sum(one.steps * one.mean for one in more)
    return replace(_with_period(speed, steps=steps, sum_seconds=seconds), fast=0)


def _faster(speed: Speed) -> Speed:
    """A block of a slower rank that is not slow: after several of them it has recovered."""
    fast = speed.fast + 1
    if fast < _RECOVERED:
        return replace(speed, fast=fast)
    recovered = speed.blocks[-fast:]
    speed = _ended(speed, recovered[0].began_ns, recovered[0].first - 1)
    return replace(speed, fast=0, blocks=recovered)


def _over(speed: Speed) -> Speed:
    """Without an open period: it ends at the last step."""
    if not speed.slower:
        return speed
    last = speed.blocks[len(speed.blocks) - speed.fast :]  # fast ones, too few for a recovery
    return _ended(_still_slower(speed, *last), speed.last_ns, speed.steps)


def _ended(speed: Speed, at_ns: int, step: int) -> Speed:
    """With the end of the open period."""
    return _with_period(speed, ended_ns=at_ns, until_step=step)


def _with_period(speed: Speed, **changes: Any) -> Speed:
    return replace(speed, periods=(*speed.periods[:-1], replace(speed.periods[-1], **changes)))


def _reference(known: float | None, blocks: Sequence[Block]) -> float | None:
    """The fastest level that the last blocks sustain, if it is faster than the known one."""
    for fewest, least in _SUSTAINED:
        steps, seconds = 0, 0.0
        for count, block in enumerate(reversed(blocks), 1):
            steps, seconds = steps + block.steps, seconds + block.seconds
            if steps >= fewest and seconds >= least:
                level = _median(blocks[-count:])
                known = level if known is None else min(known, level)
                break
    return known


def _median(blocks: Sequence[Block]) -> float:
    return sorted(one.length for one in blocks)[len(blocks) // 2]


def _lasting_run(speed: Speed) -> tuple[Block, ...]:
    """The longest run of slow blocks up to the last one that is no chance; empty if there is none.

    A rough series has runs of slow blocks anyway. So a run is compared with the earlier blocks that
    were at least as slow as its fastest one: a run far above them needs to be no longer than usual.
    """
    if not speed.is_slow:
        return ()
    slow, found = SLOWER_TIMES * (speed.reference or math.inf), 0
    earlier = _counted(speed.earlier, speed.blocks)
    fastest, seconds, steps = math.inf, 0.0, 0
    for count, block in enumerate(reversed(speed.blocks), 1):
        if block.length < slow:
            break
        fastest = min(fastest, block.length)
        seconds, steps = seconds + block.seconds, steps + block.steps
        earlier[_bin(block.length)] -= 1
        lasting = seconds >= SUSTAINED_SECONDS and steps >= SUSTAINED_STEPS
        if lasting and count >= _no_chance(earlier, fastest):
            found = count
    return speed.blocks[-found:] if found else ()


def _no_chance(earlier: Mapping[int, int], seconds: float) -> int:
    """The number of blocks in a row of ``seconds`` a step or more that is no chance."""
    edge = _bin(seconds)
    odd = sum(count for at, count in earlier.items() if at >= edge)
    share = (odd + 1) / (sum(earlier.values()) + 8)
    return math.ceil(math.log(_CHANCE) / math.log(min(share, 0.9)))


def _bin(seconds: float) -> int:
    """The bin of a step length; eight bins for each doubling."""
    return math.floor(8 * math.log2(max(seconds, 1e-6)))


def _counted(counts: Mapping[int, int], more: Iterable[Block]) -> Counter[int]:
    return Counter(counts) + Counter(_bin(one.length) for one in more)


def first_poll(slot: Slot) -> Speed:
    """The state for a record that was not seen before, from its histogram and its last steps."""
    steps = slot.steps.steps
    last_ns, begun = slot.steps.last_step_ns, slot.compile.begun
    speed = Speed(steps=steps, last_ns=last_ns, activity=begun, limits=_limits(slot))
    if slot.identity.gpus:
        return replace(speed, since=steps + 1, queued=CleanSteps.of(slot))
    if slot.compile.active_since_ns:
        return speed
    words = list(takewhile(is_clean, slot.recent))[::-1]
    speed = replace(speed, steps=steps - len(words), since=steps - len(words) + 1)
    reference = level_before(slot)
    if reference is None:
        return _with_steps(speed, words, slot.steps, 1)
    earlier = Counter[int]()
    for length, count in blocks_in(slot.clean_bins, map(record.length_ns, words), _BLOCK_NS):
        earlier[_bin(length)] += count
    speed = replace(speed, reference=reference, earlier=earlier)
    speed = _with_steps(speed, words, slot.steps, 1)
    lengths = record.recent_lengths(slot.recent)
    if speed.periods or not _was_slow(slot.clean_bins, lengths, reference):
        return speed
    period = Period(before=reference, steps=len(lengths), sum_seconds=sum(lengths) / 1e9)
    return replace(speed, periods=(period,))


def _was_slow(bins: Sequence[int], lengths: Sequence[int], reference: float) -> bool:
    """Whether the last steps were slow for _LAST_STEPS_SECONDS, and enough of all for a level.

    ``bins``: of all steps. ``lengths``: of the last ones.
    """
    middle = reference * 1e9 * (1 + SLOWER_TIMES) / 2
    steps, seconds = slow_in(bins, middle)
    return (
        steps >= SUSTAINED_STEPS
        and seconds >= SUSTAINED_SECONDS
        and (record.median_ns(lengths) or 0.0) >= SLOWER_TIMES * reference * 1e9
        and len(lengths) >= SUSTAINED_STEPS
        and sum(lengths) >= _LAST_STEPS_SECONDS * 1e9
        and sum(one >= middle for one in lengths) >= (1 - FEW_SHARE) * len(lengths)
    )


def _with_start(speed: Speed, slot: Slot, slowed: LongStep | None) -> Speed:
    """With the start from the journal, if no poll saw it and all steps since were slow."""
    if slowed is None or not speed.slower or speed.periods[-1].since_step is not None:
        return speed
    edge, steps = SLOWER_TIMES * speed.periods[-1].before, slot.steps.steps + 1 - slowed.step
    slow, _ = slow_in(slot.clean_bins, edge * 1e9)
    if not slowed.usual_seconds < edge < slowed.seconds or slow < (1 - FEW_SHARE) * steps:
        return speed
    began = slowed.at_ns - round(slowed.seconds * 1e9)
    return _with_period(speed, began_ns=began, since_step=slowed.step - 1)


def slower(speed: Speed | None, recent_seconds: float | None) -> Slower | None:
    """How a rank is slower now than it was; ``recent_seconds``: its recent step length."""
    if speed is None or not speed.slower or not speed.reference or not recent_seconds:
        return None
    if recent_seconds < SLOWER_TIMES * speed.reference:
        return None
    return Slower(
        seconds=recent_seconds,
        ratio=recent_seconds / speed.reference,
        before=speed.reference,
        since_step=speed.periods[-1].since_step,
        causes=_causes(speed.before, speed.now) if speed.now else None,
    )


def _causes(before: Surroundings | None, now: Surroundings) -> tuple[str, ...] | None:
    """``None`` if there is nothing to compare with: no poll saw the rank while it was faster."""
    return tuple(causes_since(before, now)) or (None if before is None else ())


def slower_periods(speed: Speed, header: Header, *, ended: bool) -> tuple[SlowerPeriod, ...]:
    """The last periods in which a rank was slower; ``ended``: the rank has ended."""
    if ended:
        speed = _over(speed)
    return tuple(
        SlowerPeriod(
            began_at=header.epoch_seconds(one.began_ns) if one.began_ns else None,
            ended_at=header.epoch_seconds(one.ended_ns) if one.ended_ns else None,
            since_step=one.since_step,
            until_step=one.until_step if one.ended_ns else None,
            seconds=one.sum_seconds / one.steps,
            before=one.before,
            ratio=one.sum_seconds / one.steps / one.before,
            causes=one.causes,
        )
        for one in speed.periods
    )
