"""The hot path: what happens at every step.

A regular step is one of the leading optimizer, after K clean ones, with no compile activity since.
It costs a clock read and four stores into the slot: its length, its time, the number of steps and
the count of its bin. One comparison shows that it is regular, since anything irregular (activity,
another optimizer) resets ``regular``. Reading a slot word costs as much as storing it. So closure
cells hold copies of the last three words; code that stores one of them also updates its cell. A
regular step calls no other function of the agent.

Several threads may mark steps. The interpreter switches threads only at calls and at the end of a
loop iteration. So one thread is alone after the clock read, without a lock, and no count and no bin
is lost. Another thread may have marked a later step since the clock read: that step then has no
length. Without the GIL this holds for one thread that marks steps; of several in the same moment
some are lost (docs/explanation/reliability.md).
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, NamedTuple, Protocol

from warmwatch._guard import report
from warmwatch.shared import record
from warmwatch.shared.record import BOUNDS_NS, COMPILE_INDEX, STEPS_INDEX, packed
from warmwatch.steps.attribution import is_long, slow_from_ns, usual_ns

_BEGUN = COMPILE_INDEX["begun"]
_SINCE = COMPILE_INDEX["active_since_ns"]
_BACKGROUND, _BACKGROUND_SINCE = COMPILE_INDEX["background"], COMPILE_INDEX["background_since_ns"]
_BACKGROUND_ENDED = COMPILE_INDEX["background_ended_ns"]
# A step this much longer than usual may have waited for an activity that ended in it.
_HELD_UP_TIMES, _HELD_UP_NS = 2, 10**8
_TOUCHED = -1  # never a number of activities: judge the next step
_BASELINE = -2  # the same, because the next step runs eagerly
assert _BEGUN == 0, "known as block[0]: a constant costs less than a name"
_HOT = [
    record.STEPS_OFFSET // 8 + STEPS_INDEX[name]
    for name in ("steps", "last_step_ns", "last_duration_ns")
]
assert _HOT == [8, 9, 10], "slot[8] to slot[10] are these words"
# A step stores into the pages before this one. The ring is at their end, in a view of its own:
# `steps % 64` costs 40 ns less than the index `steps | -64` into all of them.
_HOT_END = record.COMPILE_BINS_OFFSET
assert (record.RING_OFFSET, record.RING) == (_HOT_END - 64 * 8, 64), "known as slot[-64:]"

# Begin of each bin, and end of the last one. A search gives 1 for the first bin.
_EDGES = (-1, *BOUNDS_NS, 2**64)
_BEFORE_CLEAN_BINS = record.CLEAN_BINS_OFFSET // 8 - 1
_CLEAN_BINS = slice(_BEFORE_CLEAN_BINS + 1, _BEFORE_CLEAN_BINS + 1 + record.BINS)

Buffer = bytearray | mmap.mmap


class StepMarks(Protocol):
    """Receives the steps that are not regular. The ledger implements it."""

    def first_began(self) -> int:
        """When step 1 began, if something has compiled."""

    def resumed(self, now: int, last: int, duration: int) -> int:
        """The length of a clean step, which is not the first, without its pauses."""

    def step(
        self,
        steps: int,
        now: int,
        duration: int,
        *,
        rest: int,
        seen: int,
        touched: bool,
        baseline: bool = False,
    ) -> tuple[int, int]:
        """An irregular step was marked: the first one, one with activity, or a ``baseline``'s.

        Returns ``duration`` and ``rest`` without pauses.
        """

    def passed(self, seen: int) -> None:
        """A clean step was marked when ``seen`` activities had begun: it waited for none."""

    def held_up(self, before: int, steps: int) -> None:
        """The step after number ``steps``, marked at ``before``, waited for background activity."""

    def slow(self, now: int) -> None:
        """A clean step took much longer than usual."""

    def warm(self, now: int, steps: int) -> None:
        """The K-th clean step in a row was marked; ``steps`` came before the first of them."""


class CompilerActivity(Protocol):
    """What the hot path reads of the compiler's activity. The ledger implements it."""

    @property
    def block(self) -> array[int]:
        """The counters of the compile block."""

    @property
    def marks(self) -> StepMarks:
        """Where steps that are not regular are reported."""

    def on_begin(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` when activity has begun, on any thread."""

    def abandon(self) -> None:
        """End what the calling thread began: it marks a step, so nothing of it is in progress."""

    def compile_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The functions that share the step's state.

    Attributes:
        on_step: called with the optimizer at the end of each step; with ``None`` it marks a step by
            hand.
        lead: sets whose calls are steps: an optimizer's ``id``, that of ``None``, or 0 to decide
            each call separately.
        bind: stores into another buffer from now on; with another ledger, starts again.
        wrap_rare: wraps all agent functions that ``on_step`` calls, which is rare: a regular step
            then runs no other Python code.
        baseline: marks the first ``steps`` steps as eager on purpose: none of them is clean, and
            each is reported. Call it before the first step, or while one of them is reported.
    """

    on_step: Callable[[Any], None]
    lead: Callable[[int], None]
    bind: Callable[[Buffer, CompilerActivity], None]
    wrap_rare: Callable[[Callable[[Any], Any]], None]
    baseline: Callable[[int], None]


def _views(buffer: Buffer) -> tuple[memoryview, memoryview, memoryview]:
    """The words that a step stores, the ring at their end, and the bins of steps with activity."""
    slot = memoryview(buffer)[:_HOT_END].cast("Q")
    return slot, slot[-64:], record.histograms(buffer)[1]


class _Irregular(NamedTuple):
    """A step that is not clean, or the first one.

    ``rest``: its length without compile activity. ``seen``: activities that had begun by then.
    """

    number: int
    now: int
    duration: int
    rest: int
    seen: int
    first: bool
    touched: bool
    baseline: bool


class _WarmUp:
    """What decides whether a step is clean, and which one makes the rank warm.

    Attributes:
        ledger, block: the compiler's activity. warm_at: the step that makes the rank warm.
        seen: activities that had begun at the last step, or _TOUCHED, _BASELINE. waited: those of
        them that the training may have waited for. compiled_ns: compile time by then.
        background_ended_ns: of the last compilation in the background that a step noticed.
        early: steps that are counted before their counters are stored. eager: the number of the
        last baseline step.
    """

    __slots__ = (
        *("background_ended_ns", "compiled_ns", "eager", "early", "ledger", "seen", "waited"),
        *("warm_at", "warm_steps", "block"),
    )

    def __init__(self, ledger: CompilerActivity, warm_steps: int) -> None:
        self.ledger, self.block, self.warm_steps = ledger, ledger.block, warm_steps
        self.seen, self.warm_at = _TOUCHED, warm_steps
        self.early = self.compiled_ns = self.waited = self.background_ended_ns = self.eager = 0

    def notice_background(self, now: int, last: int, usual: Callable[[], int]) -> bool:
        """Whether a compilation in the background has ended in this step and held it up.

        ``last``: the previous step. ``usual``: returns the usual length of a step.
        """
        if self.block[_BACKGROUND_ENDED] == self.background_ended_ns:
            return False
        self.background_ended_ns = self.block[_BACKGROUND_ENDED]
        length = usual()
        return not length or now - last > _HELD_UP_TIMES * length + _HELD_UP_NS

    def judge_irregular(self, now: int, slot: memoryview) -> _Irregular | None:
        """Judge the first step, one with activity, or one after a step with open activity.

        ``None``: it is clean. Else it counts as ``early`` until its counters are stored.
        """
        block = self.block
        self.ledger.abandon()
        total = self.ledger.compile_ns()
        # Read the count before the state: activity that begins between the two reads shows in the
        # count at the next step. The ledger stores in reverse order, so a count is never ahead of
        # its state.
        number, active = block[0], block[_SINCE] != 0
        waited = number - block[_BACKGROUND]
        last = slot[9]
        count = slot[8] + self.early + 1
        touched = active or waited != self.waited or (self.seen == _TOUCHED and count > 1)
        baseline = count <= self.eager
        if count > 1 and not touched and not baseline:
            # all activity is in the background, or another thread's step was handled
            self.compiled_ns, self.seen = total, number
            self.ledger.marks.passed(number)
            return None
        self.early += 1
        now = now if now > last else last
        start = last or (self.ledger.marks.first_began() if touched else 0)
        duration = now - start if start else 0
        # never negative: an open activity is accounted until after ``now``
        rest = max(0, duration - (total - self.compiled_ns)) if last else 0
        self.compiled_ns, self.waited = total, waited
        self.seen = _TOUCHED if active else _BASELINE if count < self.eager else number
        if touched:  # with no call since ``seen``: another thread's step would become regular
            self.warm_at = (count if count > self.eager else self.eager) + self.warm_steps
        first = not last
        return _Irregular(count, now, duration, rest, number, first, touched, baseline)

    def begin_baseline(self, steps: int, count: int) -> None:
        """The steps up to number ``count`` run eagerly; ``steps`` are over."""
        self.eager, self.warm_at = count, count + self.warm_steps
        if steps and self.seen != _TOUCHED:
            self.seen = _BASELINE if count > steps else self.block[0]


def make_steps(  # noqa: C901 - closures that share cells have to stand in one function
    buffer: Buffer,
    ledger: CompilerActivity,
    *,
    is_step: Callable[[Any], bool],
    warm_steps: int,
    on_warm: Callable[[], None],
    on_long: Callable[[int, int, int, int], None],
    on_baseline: Callable[[int, int], None] = lambda count, length: None,  # noqa: ARG005
    clock: Callable[[], int] = monotonic_ns,
) -> Steps:
    """The step functions, as closures: cells are Python's cheapest state.

    What a regular step reads is in cells, the rest in ``warm_up``. Each function that stores a step
    does so without a call in between, so these functions share the cells. A step goes from
    ``on_step``, which stores a regular one, through ``judge`` to ``mark`` or ``mark_closely``.

    Args:
        buffer: the slot's memory, or plain memory. ledger: the compiler's activity.
        is_step: whether a call by an optimizer that does not lead is a step.
        warm_steps: K. on_warm: called at the K-th clean step in a row, after all stores.
        on_long: called when a clean step took far longer than usual. Arguments: the step count,
            the time, the time since the previous step, and the usual length.
        on_baseline: called with the step count and the length of the last step, if it was an eager
            baseline step; 0 if its length is unknown, or activity was within it.
    """
    slot, ring, touched_bins = _views(buffer)
    warm_up = _WarmUp(ledger, warm_steps)
    id_of, bin_of, edges = id, bisect_left, _EDGES
    regular = leader = 0
    low = high = place = 0  # bounds and word index of the last regular step's bin
    within = 0  # the value of that word
    done, before = slot[8], slot[9]
    suspect = 0  # a longer step may be a long one; 0: unknown

    def on_step(optimizer: Any) -> None:
        nonlocal low, high, place, within, done, before
        try:
            if id_of(optimizer) != regular:
                judge(optimizer)
                return
            now = clock()
            last = before
            duration = now - last
            if not low < duration <= high:
                index = bin_of(edges, duration)
                if now < last or before != last or duration > suspect:
                    mark(now)  # another thread has marked a step meanwhile, or it is long
                    return
                low, high, place = edges[index - 1], edges[index], _BEFORE_CLEAN_BINS + index
                within = slot[place]
            ring[done % 64] = duration
            slot[9] = before = now
            slot[8] = done = done + 1
            slot[place] = within = within + 1
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            failed(error)

    def judge(optimizer: Any) -> None:
        """Handle any call but the regular ones."""
        if id(optimizer) != leader and not is_step(optimizer):
            return
        now = clock()
        if warm_up.block[_BACKGROUND_SINCE]:
            warm_up.ledger.abandon()  # a thread that is gone reports no end
        if warm_up.notice_background(now, slot[9], usual):
            warm_up.ledger.marks.held_up(slot[9], slot[8] + warm_up.early)
            warm_up.waited = _TOUCHED
            mark_closely(now)
        elif warm_up.block[0] != warm_up.seen:
            mark_closely(now)
        else:
            mark(now)

    def mark(now: int) -> None:
        """Handle a clean step that is not known to be regular, or that raced with another
        thread."""
        nonlocal regular, low, high, done, before
        while True:
            last = slot[9]
            duration = now - last if now > last else 0
            # a save or an evaluation in between is not part of the step
            without = warm_up.ledger.marks.resumed(last + duration, last, duration)
            index, word = bin_of(edges, without), packed(without, duration - without)
            if slot[9] == last:  # else another thread has marked a step meanwhile
                break
        count = done + warm_up.early + 1
        ring[done % 64] = word
        slot[10] = without
        slot[9] = before = last + duration
        slot[8] = done = done + 1
        slot[_BEFORE_CLEAN_BINS + index] += 1
        low = high = 0  # ``within`` may belong to this bin
        if count >= warm_up.warm_at:
            regular = 0 if warm_up.block[_BACKGROUND_SINCE] else leader
            if warm_up.block[0] != warm_up.seen:  # check last: later activity clears it itself
                regular = 0
        if count == warm_up.warm_at:
            become_warm(now, count)
        elif duration > suspect and count > warm_up.warm_at:
            check_length(count, last + duration, duration)

    def mark_closely(now: int) -> None:
        """Handle a step that may not be clean."""
        nonlocal regular, done, before
        regular, judged = 0, warm_up
        step = judged.judge_irregular(now, slot)
        if step is None:
            mark(now)
            return
        count, now, duration, rest, seen, first, touched, baseline = step
        whole = duration
        try:
            if touched or baseline or count == 1:
                duration, rest = judged.ledger.marks.step(
                    count, now, duration, rest=rest, seen=seen, touched=touched, baseline=baseline
                )
            index, word = bin_of(edges, duration), packed(duration, whole - duration, clean=False)
        finally:
            judged.early -= 1
        ring[done % 64] = word
        slot[10] = duration
        slot[9] = before = now if now > before else before
        slot[8] = done = done + 1
        if touched:
            touched_bins[index - 1] += 1
        if baseline:
            on_baseline(count, 0 if touched or first else rest)
        if count == judged.warm_at:
            become_warm(now, count)

    # What follows from a stored step.

    def usual() -> int:
        return usual_ns(slot[_CLEAN_BINS], ring)

    def check_length(count: int, now: int, duration: int) -> None:
        nonlocal suspect
        length = usual()
        suspect = slow_from_ns(length)
        if duration > suspect:
            warm_up.ledger.marks.slow(now)
        if is_long(duration, length):
            on_long(count, now, duration, length)

    def become_warm(now: int, count: int) -> None:
        nonlocal suspect
        suspect = 0
        warm_up.ledger.marks.warm(now, count - warm_steps)
        on_warm()

    def failed(error: Exception) -> None:
        report("step", error)

    # Called from outside a step.

    def on_activity() -> None:
        """Compile activity has begun: no step is regular until one was judged."""
        nonlocal regular, suspect
        regular = suspect = 0

    def lead(optimizer_id: int) -> None:
        nonlocal leader, regular
        leader, regular = optimizer_id, 0

    def begin_baseline(count: int) -> None:
        nonlocal regular
        regular = 0
        warm_up.begin_baseline(slot[8], count)

    def bind(new_buffer: Buffer, new_ledger: CompilerActivity) -> None:
        nonlocal slot, ring, touched_bins, done, before, low, high
        nonlocal warm_up, leader, regular, suspect
        slot, ring, touched_bins = _views(new_buffer)
        done, before, low, high = slot[8], slot[9], 0, 0
        if new_ledger is not warm_up.ledger:
            warm_up = _WarmUp(new_ledger, warm_steps)
            leader = regular = suspect = 0
            new_ledger.on_begin(on_activity)

    def wrap_rare(wrap: Callable[[Any], Any]) -> None:
        nonlocal judge, mark, failed
        judge, mark, failed = wrap(judge), wrap(mark), wrap(failed)

    ledger.on_begin(on_activity)
    return Steps(
        on_step=on_step, lead=lead, bind=bind, wrap_rare=wrap_rare, baseline=begin_baseline
    )
