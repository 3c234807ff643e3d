"""Change-point detector: has a training become slower, when, and compared with what? Pure, bounded.

A record holds the last 64 step lengths. :func:`follow` adds those that are new at each poll to
*blocks* of about two seconds, each with the median length of its clean steps. The *reference* is
the fastest sustained level of this warm-up, and a block is slow at SLOWER_TIMES the reference.

A rank is slower once the last blocks have all been slow for SUSTAINED_SECONDS and 10 steps, and a
row of so many slow blocks is unlikely by chance. That depends on the earlier blocks: the more of
them were as slow as the fastest block of the row, the longer the row must be. So a training whose
steps vary raises no alarm, and one whose first steps are fast or vary is still followed. The rank
is no longer slower when three blocks in a row are not slow. The state is of fixed size.

A period is measured against the level just before it. That becomes the reference, if the steps are
slow beside it too. A second change within a period has its own step and level before. A hang, in
which the rank was silent, is no slow step.

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
from itertools import accumulate, takewhile
from operator import itemgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch.shared.record import Header, Slot, StepCounts
from warmwatch.shared.record.recent import gap_ns, is_clean
from warmwatch.shared.verdict import SILENT_FLOOR_NS, SILENT_STEPS
from warmwatch_monitor.figures.rank import Slower, SlowerPeriod
from warmwatch_monitor.model.causes import Surroundings, causes_since
from warmwatch_monitor.model.journal import LongStep
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
_LAST_STEPS_SECONDS = 3.0  # the least that the record's last steps take; fewer may be a burst
_WINDOW = 32  # blocks; a level of long steps needs many
_CHANCE = 1e-8  # probability that so many slow blocks in a row are chance
_RECOVERED = 3  # blocks in a row that are not slow
_LEVEL = 3  # blocks: the level before a change
_MOST_PERIODS = 16


class Block(Struct, frozen=True):
    """Steps of about two seconds."""

    first: int  # its first step; that of its level if that begins here or in the block before
    steps: int
    seconds: float  # with pauses
    length: float  # the median of the clean ones in seconds, with GPUs their ``mean``
    mean: float
    began_ns: int  # begin of ``first``


class Period(Struct, frozen=True, kw_only=True):
    """A time in which a rank was slower."""

    before: float  # the level before
    began_ns: int = 0  # 0 if not known
    since_step: int | None = None  # the last step before it; ``None`` if not known
    steps: int = 0  # of its blocks, as ``sum_seconds``: each step counts with their mean
    sum_seconds: float = 0.0
    ended_ns: int = 0  # 0 while it lasts, as ``until_step``
    until_step: int = 0
    causes: tuple[str, ...] | None = None  # the last known ones; ``None`` if not measured
    # the last change within it to steps that are slower still: the level before, the step before
    second_change: tuple[float, int] | None = None


class Speed(Struct, frozen=True, kw_only=True):
    """The detector's state between two polls."""

    steps: int = 0  # as of the last poll, and the time of the last one
    last_ns: int = 0
    since: int = 0  # the first step that a poll saw
    activity: int = -1  # number of activities that had begun
    limits: int = 0  # number of fallbacks and graph breaks
    # the block that is being filled: its first step, number of steps, time, lengths of clean ones
    first: int = 0
    count: int = 0
    spent_ns: int = 0
    lengths: tuple[int, ...] = ()
    lengths_before: tuple[int, ...] = ()  # of the block before it
    queued: CleanSteps | None = None  # the clean steps before it, of a training on GPUs
    blocks: tuple[Block, ...] = ()  # the last complete ones; in a slower period, only its own
    # the number of blocks before these and outside of slower periods, by ``_bin`` of their length
    earlier: Mapping[int, int] = {}
    reference: float | None = None  # seconds a step
    fast: int = 0  # number of blocks in a row that were not slow
    periods: tuple[Period, ...] = ()  # the last ones; open is the last while the rank is slower
    before: Surroundings | None = None  # while it was as fast as usual
    usual: Surroundings | None = None  # at the last block
    now: Surroundings | None = None  # at the last poll while it is slower or the last block is slow
    # the last known ones since then: a period has those from before it was found too
    causes: tuple[str, ...] | None = None

    @property
    def slower(self) -> bool:
        return bool(self.periods) and not self.periods[-1].ended_ns

    @property
    def slow_seconds(self) -> float:
        """From which length on a step is slow."""
        return SLOWER_TIMES * (self.reference or math.inf)

    @property
    def is_slow(self) -> bool:
        """Whether the last block is slow."""
        return bool(self.blocks) and self.blocks[-1].length >= self.slow_seconds


def follow(
    previous: Speed | None,
    slot: Slot,
    read_surroundings: Callable[[], Surroundings] | None = None,
    slowed: LongStep | None = None,
) -> Speed:
    """``previous`` with the new steps of ``slot``; ``None`` at the first poll.

    ``read_surroundings``: ``None`` if the process has ended. ``slowed``: see ``RecordReading``.
    """
    speed = _with_start(_followed(previous, slot), slot, slowed)
    if speed.slower or speed.is_slow:
        if read_surroundings is not None:  # causes that no longer hold stay if no other does
            now = read_surroundings()
            causes = _causes(speed.before, now)
            speed = replace(speed, now=now, causes=causes or speed.causes or causes)
        return _with_period(speed, causes=speed.causes) if speed.slower else speed
    if read_surroundings is None or (previous and speed.blocks == previous.blocks):
        return speed
    # of the block before: the one in progress may be slow already
    return replace(speed, before=speed.usual, usual=read_surroundings(), causes=())


def _followed(speed: Speed | None, slot: Slot) -> Speed:
    if speed is None or slot.steps.steps < speed.steps:
        return first_poll(slot)
    if slot.identity.gpus and speed.queued is None:
        return first_poll(slot)  # it uses them from now on
    speed = _of_this_warmup(speed, slot)
    if speed.queued is not None:
        return _with_queued(speed, speed.queued, slot)
    new = min(slot.steps.steps - speed.steps, len(slot.recent))
    complete = speed.spent_ns + slot.steps.last_step_ns - speed.last_ns >= _BLOCK_NS
    if not new or not (complete or new >= _ENOUGH or speed.slower):
        return speed  # the ring still has them when the block is complete
    missed = slot.steps.steps - speed.steps - new
    # assume that missed steps took as long as those in the ring
    return _with_steps(speed, slot.recent[:new][::-1], slot.steps, 1 + missed / new)


def _of_this_warmup(speed: Speed, slot: Slot) -> Speed:
    """Start over after compile activity, unless it made code fall back to eager.

    A fallback is a reason to be slower, so the reference stays.
    """
    begun, limits = slot.compile.begun, _limits(slot)
    if begun == speed.activity:
        return speed
    # no poll has seen which of the steps until now came before the activity
    steps, last_ns = slot.steps.steps, slot.steps.last_step_ns
    if limits > speed.limits and speed.reference is not None:
        return replace(
            speed,
            steps=steps,
            last_ns=last_ns,
            activity=begun,
            limits=limits,
            lengths=(),
            lengths_before=(),
            spent_ns=0,
            count=0,
        )
    return Speed(
        steps=steps,
        last_ns=last_ns,
        activity=begun,
        limits=limits,
        periods=_closed(speed).periods,
        queued=CleanSteps.of(slot) if speed.queued else None,
    )


def _limits(slot: Slot) -> int:
    return slot.compile.fallbacks + slot.compile.graph_breaks


def _with_steps(speed: Speed, ring: Sequence[int], counts: StepCounts, weight: float) -> Speed:
    """With the steps of ``ring``, oldest first; the last one is step number ``counts.steps``.

    ``weight``: how many steps each of them stands for.
    """
    lengths, spent = list(speed.lengths), speed.spent_ns
    first, count = speed.first, speed.count
    gaps = [gap_ns(word) for word in ring]
    at, step = counts.last_step_ns - sum(gaps), counts.steps - len(ring)
    for word, gap in zip(ring, gaps, strict=True):
        step += 1
        first = first if count else step
        count += 1
        at += gap
        spent += round(gap * weight)
        if is_clean(word):
            lengths.append(record.length_ns(word))
        if spent >= _BLOCK_NS:
            median = record.median_ns(lengths)
            if median is not None:
                steps, mean = round(count * weight), sum(lengths) / len(lengths)
                block = Block(first, steps, spent / 1e9, median / 1e9, mean / 1e9, at - spent)
                speed = _with_block(speed, _from_change(speed, block, step, lengths))
            speed = replace(speed, lengths_before=tuple(lengths[-_MOST_LENGTHS:]))
            lengths, spent, count = [], 0, 0
    return replace(
        speed,
        steps=counts.steps,
        last_ns=counts.last_step_ns,
        lengths=tuple(lengths[-_MOST_LENGTHS:]),
        spent_ns=spent,
        first=first,
        count=count,
    )


def _from_change(speed: Speed, block: Block, last: int, lengths: Sequence[int]) -> Block:
    """``block`` from the step at which its level began; ``last``: its last step.

    That is somewhere in it or in the block before, and not at a hang.
    """
    before = speed.blocks[-1].length if speed.blocks else block.length
    both = (*speed.lengths_before, *lengths)
    if max(before, block.length) < SLOWER_TIMES * min(before, block.length) or len(both) > last:
        return block
    if len(lengths) != block.steps:
        return block  # it has steps that no poll saw, or that were not clean
    between, most = math.sqrt(before * block.length) * 1e9, _silent_seconds(block.length) * 1e9
    # counted back from the newest step: the level begins where its steps exceed others the most
    sides = accumulate(
        1 if (length > between) == (block.length > before) and length < most else -1
        for length in reversed(both)
    )
    count = 1 + max(enumerate(sides), key=itemgetter(1))[0]
    began_ns = block.began_ns + sum(lengths) - sum(both[-count:])
    return replace(block, first=last - count + 1, began_ns=began_ns)


def _silent_seconds(usual: float) -> float:
    return max(SILENT_FLOOR_NS / 1e9, SILENT_STEPS * usual)


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
        speed = _with_block(speed, Block(first, speed.count, spent, mean, mean, before.at_ns))
    return replace(speed, count=0, queued=now)


def _with_block(speed: Speed, block: Block) -> Speed:
    """With a complete block, which may begin, continue or end a slower period."""
    blocks = (*speed.blocks, block)[-_WINDOW:]
    reference = _reference(speed.reference, blocks)
    if speed.slower:
        speed = replace(speed, blocks=blocks, reference=reference)
        if speed.is_slow:
            return _with_slower_blocks(speed, *blocks[-1 - speed.fast :])
        return _with_fast_block(speed)
    earlier = _counted(speed.earlier, speed.blocks[: 1 - _WINDOW])
    speed = replace(speed, blocks=blocks, reference=reference, earlier=earlier)
    run = _lasting_run(speed)
    if not run:
        return speed
    before = _level_just_before(speed, run)
    period = Period(before=before)
    if run[0].first > speed.since:  # else it began before the first poll
        period = replace(period, began_ns=run[0].began_ns, since_step=run[0].first - 1)
    speed = replace(
        speed,
        blocks=run,
        reference=before,
        earlier=_counted(earlier, blocks[: -len(run)]),
        periods=(*speed.periods, period)[-_MOST_PERIODS:],
    )
    return _with_slower_blocks(speed, *run)


def _level_just_before(speed: Speed, run: Sequence[Block]) -> float:
    """The level of the blocks before ``run``, if it is slow beside them; else the reference."""
    reference, before = speed.reference or 0.0, speed.blocks[: -len(run)][-_LEVEL:]
    level = max(reference, _median(before)) if before else reference
    return level if _median(run) >= SLOWER_TIMES * level else reference


def _with_slower_blocks(speed: Speed, *blocks: Block) -> Speed:
    """With more blocks in the open period: slow ones, and fast ones without a recovery."""
    period = speed.periods[-1]
    counted = [block for block in blocks if not _is_hang(block, speed.blocks)]
    speed = _with_period(
        speed,
        steps=period.steps + sum(block.steps for block in counted),
        sum_seconds=period.sum_seconds + sum(block.steps * block.mean for block in counted),
        second_change=_second_change(speed, period),
    )
    return replace(speed, fast=0)


def _second_change(speed: Speed, period: Period) -> tuple[float, int] | None:
    """The last change within the open period to steps that are slower still."""
    before = _median(speed.blocks[: len(speed.blocks) // 2 + 1])
    last = period.second_change
    if last and speed.blocks[-1].length >= SLOWER_TIMES * last[0]:
        return last
    run = _lasting_run(replace(speed, reference=before))
    return (before, run[0].first - 1) if len(run) < len(speed.blocks) and run else None


def _is_hang(block: Block, others: Sequence[Block]) -> bool:
    """Whether a step of ``block`` took so long that the rank was silent, unlike in ``others``."""
    usual = sorted(other.mean for other in others)[len(others) // 2]
    return block.steps * (block.mean - usual) > _silent_seconds(usual) + _BLOCK_NS / 1e9


def _with_fast_block(speed: Speed) -> Speed:
    """A block of a slower rank that is not slow: after several of them it has recovered."""
    fast = speed.fast + 1
    if fast < _RECOVERED:
        return replace(speed, fast=fast)
    recovered = speed.blocks[-fast:]
    ended_ns, until_step = recovered[0].began_ns, recovered[0].first - 1
    speed = _with_period(speed, ended_ns=ended_ns, until_step=until_step)
    return replace(speed, fast=0, blocks=recovered)


def _closed(speed: Speed) -> Speed:
    """Without an open period: it ends at the last step."""
    if not speed.slower:
        return speed
    fast = speed.blocks[len(speed.blocks) - speed.fast :]  # too few for a recovery
    speed = _with_slower_blocks(speed, *fast)
    return _with_period(speed, ended_ns=speed.last_ns, until_step=speed.steps)


def _with_period(speed: Speed, **changes: Any) -> Speed:
    """With changes of the last period."""
    return replace(speed, periods=(*speed.periods[:-1], replace(speed.periods[-1], **changes)))


def _reference(value: float | None, blocks: Sequence[Block]) -> float | None:
    """The fastest level that the last blocks sustain, if it is faster than the known one."""
    for fewest, least in _SUSTAINED:
        steps, seconds = 0, 0.0
        for count, block in enumerate(reversed(blocks), 1):
            steps, seconds = steps + block.steps, seconds + block.seconds
            if steps >= fewest and seconds >= least:
                level = _median(blocks[-count:])
                value = level if value is None else min(value, level)
                break
    return value


def _median(blocks: Sequence[Block]) -> float:
    return sorted(block.length for block in blocks)[len(blocks) // 2]


def _lasting_run(speed: Speed) -> tuple[Block, ...]:
    """The longest run of slow blocks up to the last one that is no chance; empty if there is none.

    A rough series has runs of slow blocks anyway. So a run is compared with the earlier blocks that
    were at least as slow as its fastest one: a run far above them needs to be no longer than usual.
    """
    if not speed.is_slow:
        return ()
    earlier = _counted(speed.earlier, speed.blocks)
    fastest, longest = math.inf, 0
    for count, block in enumerate(reversed(speed.blocks), 1):
        if block.length < speed.slow_seconds:
            break
        fastest = min(fastest, block.length)
        earlier[_bin(block.length)] -= 1
        if _lasts(speed.blocks[-count:]) and count >= _blocks_beyond_chance(earlier, fastest):
            longest = count
    run = speed.blocks[-longest:] if longest else ()
    return run[1:] if run and _is_hang(run[0], run) else run


def _lasts(run: Sequence[Block]) -> bool:
    """Whether ``run`` is of enough steps and seconds; a hang counts as some steps."""
    if sum(block.steps for block in run) < SUSTAINED_STEPS:
        return False
    longest = SILENT_STEPS * _median(run)
    return sum(min(block.seconds, longest * block.steps) for block in run) >= SUSTAINED_SECONDS


def _blocks_beyond_chance(earlier: Mapping[int, int], seconds: float) -> int:
    """The number of blocks in a row of ``seconds`` a step or more that is no chance."""
    edge = _bin(seconds)
    as_slow = sum(count for index, count in earlier.items() if index >= edge)
    share = (as_slow + 1) / (sum(earlier.values()) + 8)
    return math.ceil(math.log(_CHANCE) / math.log(min(share, 0.9)))


def _bin(seconds: float) -> int:
    """The bin of a step length; eight bins for each doubling."""
    return math.floor(8 * math.log2(max(seconds, 1e-6)))


def _counted(counts: Mapping[int, int], more: Iterable[Block]) -> Counter[int]:
    return Counter(counts) + Counter(_bin(block.length) for block in more)


def first_poll(slot: Slot) -> Speed:
    """The state for a record that was not seen before, from its histogram and its last steps."""
    steps, begun = slot.steps.steps, slot.compile.begun
    speed = Speed(
        steps=steps, last_ns=slot.steps.last_step_ns, activity=begun, limits=_limits(slot)
    )
    if slot.identity.gpus:
        return replace(speed, since=steps + 1, queued=CleanSteps.of(slot))
    if slot.compile.active_since_ns:
        return speed
    newest = list(takewhile(is_clean, slot.recent))[::-1]
    speed = replace(speed, steps=steps - len(newest), since=steps - len(newest) + 1)
    reference = level_before(slot)
    if reference is None:
        return _with_steps(speed, newest, slot.steps, 1)
    earlier = Counter[int]()
    for length, count in blocks_in(slot.clean_bins, map(record.length_ns, newest), _BLOCK_NS):
        earlier[_bin(length)] += count
    speed = replace(speed, reference=reference, earlier=earlier)
    speed = _with_steps(speed, newest, slot.steps, 1)
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
        and sum(length >= middle for length in lengths) >= (1 - FEW_SHARE) * len(lengths)
    )


def _with_start(speed: Speed, slot: Slot, slowed: LongStep | None) -> Speed:
    """With the start from the journal, if no poll saw it and all steps since were slow."""
    if slowed is None or not speed.slower or speed.periods[-1].since_step is not None:
        return speed
    edge, steps = SLOWER_TIMES * speed.periods[-1].before, slot.steps.steps + 1 - slowed.step
    slow, _ = slow_in(slot.clean_bins, edge * 1e9)
    if not slowed.usual_seconds < edge < slowed.seconds or slow < (1 - FEW_SHARE) * steps:
        return speed
    began_ns = slowed.at_ns - round(slowed.seconds * 1e9)
    return _with_period(speed, began_ns=began_ns, since_step=slowed.step - 1)


def slower(speed: Speed, recent_seconds: float | None) -> Slower | None:
    """How a rank is slower now than it was; ``recent_seconds``: its recent step length."""
    recent = recent_seconds or 0.0
    if not speed.slower or recent < speed.slow_seconds:
        return None
    period = speed.periods[-1]
    before, since_step = period.before, period.since_step
    if period.second_change and recent >= SLOWER_TIMES * period.second_change[0]:
        before, since_step = period.second_change
    return Slower(
        seconds=recent,
        ratio=recent / before,
        before=before,
        since_step=since_step,
        causes=_causes(speed.before, speed.now) if speed.now else None,
    )


def is_slowing(speed: Speed, recent_seconds: float | None) -> bool:
    """Whether a rank has become slower, and it is too early to say whether that lasts."""
    slow = speed.slow_seconds
    if speed.slower or (recent_seconds or 0.0) < slow:
        return False
    return not _lasts(tuple(takewhile(lambda block: block.length >= slow, speed.blocks[::-1])))


def _causes(before: Surroundings | None, now: Surroundings) -> tuple[str, ...] | None:
    """``None`` if no poll saw the rank while it was faster: what is so now may have been before."""
    return None if before is None else tuple(causes_since(before, now))


def slower_periods(speed: Speed, header: Header, *, ended: bool) -> tuple[SlowerPeriod, ...]:
    """The last periods in which a rank was slower; ``ended``: the rank has ended."""
    if ended:
        speed = _closed(speed)
    return tuple(
        SlowerPeriod(
            began_at=header.epoch_seconds(period.began_ns) if period.began_ns else None,
            ended_at=header.epoch_seconds(period.ended_ns) if period.ended_ns else None,
            since_step=period.since_step,
            until_step=period.until_step if period.ended_ns else None,
            seconds=period.sum_seconds / period.steps,
            before=period.before,
            ratio=period.sum_seconds / period.steps / period.before,
            causes=period.causes,
        )
        for period in speed.periods
    )
