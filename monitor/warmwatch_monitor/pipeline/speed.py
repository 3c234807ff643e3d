"""Whether a training has become slower, since which step, and against what. Pure and bounded.

A record holds the last 64 step lengths. :func:`follow` takes those that are new at each look into
*blocks* of about two seconds, each with the median length of its clean steps, and compares them
with the fastest sustained level of this warm-up (the *reference*). A block is slow at SLOWER_TIMES
the reference. A rank is slower once slow blocks alone have come for SUSTAINED_SECONDS and 10
steps, and so many in a row as chance would not bring: a training whose steps vary has had slow
blocks before, and needs a longer run of them. It is no longer slower when three blocks in a row are
not slow. What is kept is of fixed size, however long the training runs.

A monitor that comes late, or a command without a daemon, has the histogram of all steps instead:
:func:`first_look` finds the fast level in that, where nothing has compiled again since.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch.shared.phrases import counted
from warmwatch.shared.record import BOUNDS_NS, Slot
from warmwatch.shared.record.recent import gap_ns, is_clean
from warmwatch_monitor.model import GpuReading, HostReading, Slower

SLOWER_TIMES = 1.5
SUSTAINED_SECONDS, SUSTAINED_STEPS = 20.0, 10
_BLOCK_NS = 2 * 10**9
_MOST_LENGTHS = 128  # of a block; of more steps than that the last ones stand for all
# A level is sustained by so many steps in so many seconds: either pair does.
_SUSTAINED = ((100, 3.0), (SUSTAINED_STEPS, 30.0))
_WINDOW = 32  # blocks that are kept: a level of long steps is made of many
_CHANCE = 1e-8  # that so many slow blocks in a row are chance
_LATELY = 5  # blocks whose median is the speed of a slower run
_RECOVERED = 3  # blocks in a row that are not slow
_FEW_FAST_SHARE, _FEW_FAST = 0.05, 32  # of the histogram's steps, and how many at least


_SM_CLOCK = "sm"
# reasons for which a GPU at work is throttled as a rule: news only where it was not before
_HARMLESS = frozenset({"sw_power_cap", "applications_clocks", "sync_boost"})
_LOADED, _WAITING, _CLOCKED, _STOLEN = 1.2, 0.2, 0.9, 0.1


class Level(Struct, frozen=True):
    """A block: its first step, how many there were in how many seconds, their median length."""

    first: int
    steps: int
    seconds: float
    median: float


class Surroundings(Struct, frozen=True, kw_only=True):
    """What may explain a speed, at one moment; ``None`` is "not known".

    Attributes:
        at_ns: the last step. attached_ns: when the agent attached. load, cpus: of the host.
        stolen: CPU seconds that its hypervisor gave to other machines, so far. wait_ns: time spent
        waiting for batches. tokens: that a step is worth. fallbacks, breaks: so far. clock_hertz:
        of the slowest GPU's SMs. throttled: reasons of any of its GPUs. others: processes on its
        GPUs.
    """

    at_ns: int
    attached_ns: int
    load: float | None = None
    cpus: int | None = None
    stolen: float | None = None
    wait_ns: int = 0
    tokens: int = 0
    fallbacks: int = 0
    breaks: int = 0
    clock_hertz: float | None = None
    throttled: tuple[str, ...] = ()
    others: int | None = None


class Speed(Struct, frozen=True, kw_only=True):
    """What is kept of a rank's speed from look to look.

    Attributes:
        steps: how many were looked at. activity: how many activities had begun by then, and
        limits: fallbacks and graph breaks. lengths, gap_ns, first: of the block that is being
        filled. levels: the last whole blocks. reference: seconds a step. run: slow blocks at the
        end of ``levels``, with run_seconds, run_steps and since_step: the step before them.
        blocks: how many blocks outside of slower levels had which median, by ``_bin``.
        slower: whether it is so now. fast: blocks in a row that were not slow. before, now: what
        was around it while it was as fast as usual, and at the last look; usual: at the last block.
    """

    steps: int = 0
    activity: int = -1
    limits: int = 0
    lengths: tuple[int, ...] = ()
    gap_ns: int = 0
    first: int = 0
    count: int = 0
    levels: tuple[Level, ...] = ()
    reference: float | None = None
    run: int = 0
    run_seconds: float = 0.0
    run_steps: int = 0
    since_step: int | None = None
    blocks: Mapping[int, int] = {}
    slower: bool = False
    fast: int = 0
    before: Surroundings | None = None
    usual: Surroundings | None = None
    now: Surroundings | None = None


def follow(known: Speed | None, slot: Slot, now: Surroundings | None = None) -> Speed:
    """``known`` with what the record says now; ``None``: it is seen for the first time."""
    speed = _followed(known, slot)
    if now is None:
        return speed
    if speed.slower or speed.run or (known and speed.levels == known.levels):
        return replace(speed, now=now)
    # a block before: the one under way may be slow already
    return replace(speed, now=now, before=speed.usual, usual=now)


def _followed(known: Speed | None, slot: Slot) -> Speed:
    if known is None or slot.steps.steps < known.steps:
        return first_look(slot)
    known = _of_this_warmup(known, slot)
    new = min(slot.steps.steps - known.steps, len(slot.recent))
    if not new:
        return known
    missed = slot.steps.steps - known.steps - new
    # what was missed took as long as what is seen, as far as anybody can tell
    return _with_steps(known, slot.recent[:new][::-1], slot.steps.steps, 1 + missed / new)


def slower(speed: Speed | None, recent_seconds: float | None) -> Slower | None:
    """How a rank is slower than it was whose recent steps take ``recent_seconds``."""
    if speed is None or not speed.slower or not speed.reference or not recent_seconds:
        return None
    # of long steps the recent ones are mostly those from before the change
    lately = [one.median for one in speed.levels[-min(_LATELY, speed.run) :] if speed.run]
    seconds = sorted(lately)[len(lately) // 2] if lately else recent_seconds
    ratio = seconds / speed.reference
    if ratio < SLOWER_TIMES or (speed.fast and recent_seconds < SLOWER_TIMES * speed.reference):
        return None
    return Slower(
        seconds=seconds,
        ratio=ratio,
        before=speed.reference,
        since_step=speed.since_step,
        causes=tuple(causes(speed.before, speed.now)) if speed.now else (),
    )


def first_look(slot: Slot) -> Speed:
    """What the histogram of all steps and the ring say of a record that was not seen before."""
    blank = Speed(steps=slot.steps.steps, activity=slot.compile.begun, limits=_limits(slot))
    lengths = record.recent_lengths(slot.recent)
    recent = record.median_ns(lengths)
    # the bins are of the whole run: after a second warm-up nobody knows which steps were of which
    if recent is None or slot.compile.warmups > 1 or slot.compile.active_since_ns:
        return blank
    reference = _fast_level(slot.clean_bins, recent / SLOWER_TIMES)
    if reference is None:
        return blank
    edge = bisect_left(BOUNDS_NS, reference * (1 + SLOWER_TIMES) / 2)
    slow = slot.clean_bins[edge:]
    seconds = sum(
        count * BOUNDS_NS[min(edge + at, len(BOUNDS_NS) - 1)] for at, count in enumerate(slow)
    )
    alike = sum(length >= reference * (1 + SLOWER_TIMES) / 2 for length in lengths)
    lasting = sum(slow) >= SUSTAINED_STEPS and seconds >= SUSTAINED_SECONDS * 1e9
    now = (
        lasting
        and len(lengths) >= SUSTAINED_STEPS
        and alike >= (1 - _FEW_FAST_SHARE) * len(lengths)
    )
    return replace(blank, reference=reference / 1e9, slower=now)


def _fast_level(bins: Sequence[int], below_ns: float) -> float | None:
    """The median of the steps that were faster than ``below_ns``, where they are many; else that
    of all, where the steps are as fast as they ever were.
    """
    total, edge = sum(bins), bisect_left(BOUNDS_NS, below_ns)
    fast = list(bins[:edge])
    if sum(fast) >= max(_FEW_FAST, _FEW_FAST_SHARE * total):
        return record.quantile_ns(fast + [0] * (len(bins) - edge), 0.5)
    return record.quantile_ns(bins, 0.5) if total >= _FEW_FAST else None


def _limits(slot: Slot) -> int:
    return slot.compile.fallbacks + slot.compile.graph_breaks


def _of_this_warmup(known: Speed, slot: Slot) -> Speed:
    """After compile activity all begins anew, but where it made code fall back to eager: that is
    a reason to be slower, and no other training.
    """
    begun, limits = slot.compile.begun, _limits(slot)
    if begun == known.activity:
        return known
    if limits > known.limits and known.reference is not None:
        return replace(known, activity=begun, limits=limits, lengths=(), gap_ns=0, count=0)
    return Speed(steps=known.steps, activity=begun, limits=limits)


def _with_steps(speed: Speed, words: Sequence[int], last: int, weight: float) -> Speed:
    """With these steps more, oldest first, the last of which is number ``last``."""
    lengths, spent = list(speed.lengths), speed.gap_ns
    first, count = speed.first, speed.count
    for number, word in enumerate(words, last + 1 - len(words)):
        first = first if count else number
        count += 1
        spent += round(gap_ns(word) * weight)
        if is_clean(word):
            lengths.append(record.length_ns(word))
        if spent >= _BLOCK_NS:
            median = record.median_ns(lengths)
            if median is not None:
                steps = round(count * weight)
                speed = _with_level(speed, Level(first, steps, spent / 1e9, median / 1e9))
            lengths, spent, count = [], 0, 0
    return replace(
        speed,
        steps=last,
        lengths=tuple(lengths[-_MOST_LENGTHS:]),
        gap_ns=spent,
        first=first,
        count=count,
    )


def _with_level(speed: Speed, level: Level) -> Speed:
    levels = (*speed.levels[1 - _WINDOW :], level)
    speed = replace(speed, levels=levels, reference=_reference(speed.reference, levels))
    if speed.reference is None:
        return speed
    if level.median < SLOWER_TIMES * speed.reference:
        return _not_slow(speed)
    run = speed.run + 1
    speed = replace(
        speed,
        fast=0,
        run=run,
        run_seconds=speed.run_seconds + level.seconds,
        run_steps=speed.run_steps + level.steps,
        since_step=level.first - 1 if run == 1 and not speed.slower else speed.since_step,
    )
    if speed.slower:
        return speed
    lasting = speed.run_seconds >= SUSTAINED_SECONDS and speed.run_steps >= SUSTAINED_STEPS
    return replace(speed, slower=True) if lasting and run >= _no_chance(speed) else speed


def _not_slow(speed: Speed) -> Speed:
    fast = speed.fast + 1
    if speed.slower:
        if fast < _RECOVERED:
            return replace(speed, fast=fast)
        return replace(
            speed, slower=False, since_step=None, run=0, run_seconds=0.0, run_steps=0, fast=0
        )
    return replace(
        speed,
        fast=fast,
        # a run that came to nothing was chance
        blocks=_counted(speed.blocks, speed.levels[-1 - speed.run :]),
        run=0,
        run_seconds=0.0,
        run_steps=0,
        since_step=None,
    )


def _no_chance(speed: Speed) -> int:
    """How many slow blocks in a row are no chance, given how many there were before."""
    slow = _bin(SLOWER_TIMES * (speed.reference or 0.0))
    odd = sum(count for at, count in speed.blocks.items() if at >= slow)
    share = (odd + 1) / (sum(speed.blocks.values()) + 8)
    return math.ceil(math.log(_CHANCE) / math.log(min(share, 0.9)))


def _bin(seconds: float) -> int:
    """Eight to a doubling."""
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


def around(slot: Slot, gpus: Sequence[GpuReading], host: HostReading | None) -> Surroundings:
    """What is around a rank now."""
    clocks = [dict(gpu.clocks_hertz).get(_SM_CLOCK) for gpu in gpus]
    known = [hertz for hertz in clocks if hertz]
    listed = [len(gpu.processes) for gpu in gpus if gpu.processes is not None]
    reasons = {name for gpu in gpus for name, holds in gpu.throttled if holds}
    return Surroundings(
        at_ns=slot.steps.last_step_ns,
        attached_ns=slot.header.attached_ns,
        load=host.load_1m if host else None,
        cpus=host.cpus if host else None,
        stolen=host.stolen_seconds if host else None,
        wait_ns=slot.steps.batch_wait_ns,
        tokens=slot.compile.tokens_per_step,
        fallbacks=slot.compile.fallbacks,
        breaks=slot.compile.graph_breaks,
        clock_hertz=min(known) if known else None,
        throttled=tuple(sorted(reasons)),
        others=max(listed) if listed else None,
    )


def causes(before: Surroundings | None, now: Surroundings) -> Iterator[str]:
    """What differs and makes steps longer, the surest first; nothing where nothing is known to.

    ``before``: ``None`` where nobody looked when it was faster.
    """
    if before is not None:
        yield from _changed(before, now)
    known = set(before.throttled) if before else _HARMLESS
    if throttled := [reason for reason in now.throttled if reason not in known]:
        yield f"GPU throttled ({', '.join(throttled)})"
    earlier = before.load if before and before.load else 0.0
    if now.load and now.cpus and now.load > _LOADED * max(now.cpus, earlier):
        yield f"load {now.load:.1f} on {now.cpus} CPUs"


def _changed(before: Surroundings, now: Surroundings) -> Iterator[str]:
    if now.fallbacks > before.fallbacks:
        more = counted(now.fallbacks - before.fallbacks, "more function")
        yield f"new inputs of {more} run eagerly"  # at the recompile limit, or by a setting
    if now.breaks > before.breaks:
        yield f"{now.breaks - before.breaks} more graph breaks"
    if now.tokens != before.tokens:
        yield f"tokens a step went from {before.tokens} to {now.tokens}"
    share, earlier = (
        _waiting(before, now),
        before.wait_ns / max(1, before.at_ns - before.attached_ns),
    )
    if share > _WAITING and share > 2 * earlier:
        yield f"{100 * share:.0f} % of the time is waiting for data"
    if now.others is not None and before.others is not None and now.others > before.others:
        yield "another process on the GPU"
    stolen = _stolen(before, now)
    if stolen > _STOLEN:
        yield f"the hypervisor takes {100 * stolen:.0f} % of the CPU time (steal)"
    if before.clock_hertz and now.clock_hertz and now.clock_hertz < _CLOCKED * before.clock_hertz:
        clocks = f"{now.clock_hertz / 1e6:.0f} MHz ({before.clock_hertz / 1e6:.0f} before)"
        yield f"GPU clock at {clocks}"


def _stolen(before: Surroundings, now: Surroundings) -> float:
    """The share of the CPUs' time since that went to other machines; 0 where nobody counts it."""
    if before.stolen is None or now.stolen is None or not now.cpus:
        return 0.0
    return (now.stolen - before.stolen) * 1e9 / (now.cpus * max(1, now.at_ns - before.at_ns))


def _waiting(before: Surroundings, now: Surroundings) -> float:
    """The share of the time since that the loop waited for batches."""
    return (now.wait_ns - before.wait_ns) / max(1, now.at_ns - before.at_ns)
