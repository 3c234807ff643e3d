"""The hot path: what happens at every step.

A regular step is one of the leading optimizer, after K clean ones, with no compile activity since.
It costs a clock read and four stores into the slot; one stores its length into the ring of the last
steps. One comparison shows that it is regular, since anything irregular (activity, another
optimizer) resets ``regular``. Reading a slot word costs as much as storing it. So cells hold the
number of steps, the last step's time and its bin's count; code that stores one of these words also
updates its cell. A regular step calls no other function of the agent.

Several threads may mark steps. The interpreter switches threads only at calls and at the end of a
loop iteration, so one thread is alone after the clock read, without a lock: no count and no bin is
lost. Another thread may have marked a later step since the clock read: that step then has no
length. Without the GIL this holds for one thread that marks steps; of several in the same moment
some are lost (docs/explanation/reliability.md).
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, Protocol

from warmwatch._guard import report
from warmwatch.shared import record
from warmwatch.shared.record import BOUNDS_NS, COMPILE_INDEX, STEPS_INDEX, packed
from warmwatch.steps.long_steps import is_long, usual_ns, worth_a_look_ns

_BEGUN = COMPILE_INDEX["begun"]
_SINCE = COMPILE_INDEX["active_since_ns"]
_FIRST_BEGIN = COMPILE_INDEX["first_begin_ns"]
_BACKGROUND, _BACKGROUND_SINCE = COMPILE_INDEX["background"], COMPILE_INDEX["background_since_ns"]
_BACKGROUND_ENDED = COMPILE_INDEX["background_ended_ns"]
# A step this much longer than usual may have waited for an activity that ended in it.
_HELD_UP_TIMES, _HELD_UP_NS = 2, 10**8
_TOUCHED = -1  # never a number of activities: look closely at the next step
_BASELINE = -2  # the same, because the next step runs eagerly
assert _BEGUN == 0, "known as words[0]: a constant costs less than a name"
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
    ) -> int:
        """An irregular step was marked: the first one, one with activity, or a ``baseline``'s."""

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
    def words(self) -> list[int]:
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
        on_step: the optimizers' post hook; called with ``None`` it marks a step by hand.
        lead: sets whose calls are steps: an optimizer's ``id``, that of ``None``, or 0 to decide
            each call separately.
        bind: stores into another buffer from now on; with another ledger, starts again.
        wrap_rare: wraps all agent functions that ``on_step`` calls, which is rare: a regular step
            then runs no other Python code.
        baseline: marks the first ``steps`` steps as eager on purpose: none of them is clean, and
            each is reported. Call it before the first step, or while one of them is reported.
    """

    on_step: Callable[[Any, Any, Any], None]
    lead: Callable[[int], None]
    bind: Callable[[Buffer, CompilerActivity], None]
    wrap_rare: Callable[[Callable[[Any], Any]], None]
    baseline: Callable[[int], None]


def _hot_words(buffer: Buffer) -> memoryview:
    return memoryview(buffer)[:_HOT_END].cast("Q")


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

    Args:
        buffer: the slot's memory, or plain memory. ledger: the compiler's activity.
        is_step: whether a call by an optimizer that does not lead is a step.
        warm_steps: K. on_warm: called at the K-th clean step in a row, after all stores.
        on_long: called when a clean step took far longer than usual, with the step count, the
            time, the time since the previous step, and the usual length.
        on_baseline: called with the step count and the length of the last step, if it was an eager
            baseline step; 0 if its length is unknown, or activity was within it.
    """
    words, slot, touched_bins = ledger.words, _hot_words(buffer), record.histograms(buffer)[1]
    ring = slot[-64:]
    id_of, bin_of, edges = id, bisect_left, _EDGES
    regular = leader = early = compiled = begun = background = 0
    seen, warm_at = _TOUCHED, warm_steps
    eager = 0  # the number of the last baseline step
    low = high = place = 0  # bounds and word index of the last regular step's bin
    within = 0  # the value of that word
    done, before = slot[8], slot[9]
    suspect = 0  # a longer step may be a long one; 0: unknown

    def on_step(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001 - torch's signature
        nonlocal low, high, place, within, done, before
        try:
            if id_of(optimizer) != regular:
                ask(optimizer)
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

    def ask(optimizer: Any) -> None:
        """Handle any call but the regular ones."""
        nonlocal background
        if id(optimizer) != leader and not is_step(optimizer):
            return
        now = clock()
        if words[_BACKGROUND_SINCE]:
            ledger.abandon()  # a thread that is gone reports no end
        if words[_BACKGROUND_ENDED] != background:
            background = words[_BACKGROUND_ENDED]
            usual = usual_ns(slot[_CLEAN_BINS], ring)
            if not usual or now - slot[9] > _HELD_UP_TIMES * usual + _HELD_UP_NS:
                held_up(now)
                return
        if words[0] != seen:
            look_closely(now)
        else:
            mark(now)

    def held_up(now: int) -> None:
        """A background compilation ended in this step, which took longer than usual."""
        nonlocal begun
        ledger.marks.held_up(slot[9], slot[8] + early)
        begun = _TOUCHED
        look_closely(now)

    def mark(now: int) -> None:
        """Handle a clean step that is not known to be regular, or that raced with another
        thread."""
        nonlocal regular, low, high, done, before
        while True:
            last = slot[9]
            duration = now - last if now > last else 0
            # a save or an evaluation in between is no part of the step
            without = ledger.marks.resumed(last + duration, last, duration)
            index, word = bin_of(edges, without), packed(without, duration - without)
            if slot[9] == last:  # else another thread has marked a step meanwhile
                break
        count = done + early + 1
        ring[done % 64] = word
        slot[10] = without
        slot[9] = before = last + duration
        slot[8] = done = done + 1
        slot[_BEFORE_CLEAN_BINS + index] += 1
        low = high = 0  # ``within`` may belong to this bin
        if count >= warm_at:
            regular = 0 if words[_BACKGROUND_SINCE] else leader
            if words[0] != seen:  # check last: later activity clears it itself
                regular = 0
        if count == warm_at:
            tell_warm(now, count)
        elif duration > suspect and count > warm_at:
            look_whether_long(count, last + duration, duration)

    def look_whether_long(count: int, now: int, duration: int) -> None:
        nonlocal suspect
        usual = usual_ns(slot[_CLEAN_BINS], ring)
        suspect = worth_a_look_ns(usual)
        if duration > suspect:
            ledger.marks.slow(now)
        if is_long(duration, usual):
            on_long(count, now, duration, usual)

    def look_closely(now: int) -> None:
        """Handle the first step, one with activity, or one after a step with open activity."""
        nonlocal regular, early, compiled, begun, seen, warm_at, done, before
        ledger.abandon()
        total = ledger.compile_ns()
        # Read the count before the state: activity that begins between the two reads shows in the
        # count at the next step. The ledger stores in reverse order, so a count is never ahead of
        # its state.
        known, active = words[0], words[_SINCE] != 0
        waited = known - words[_BACKGROUND]  # activities that the training may have waited for
        last = slot[9]
        count = slot[8] + early + 1
        touched = active or waited != begun or (seen == _TOUCHED and count > 1)
        baseline = count <= eager
        if count > 1 and not touched and not baseline:
            # all activity is in the background, or another thread's step was handled
            compiled, seen = total, known
            ledger.marks.passed(known)
            mark(now)
            return
        early += 1  # counted now, stored after the ledger has reported it
        now = now if now > last else last
        start = last or (words[_FIRST_BEGIN] if touched else 0)
        duration = now - start if start else 0
        rest = duration - (total - compiled) if last else 0
        compiled, begun, regular = total, waited, 0
        seen = _TOUCHED if active else _BASELINE if count < eager else known
        if touched:  # with no call since ``seen``: another thread's step would become regular
            warm_at = (count if count > eager else eager) + warm_steps
        try:
            if touched or baseline or count == 1:
                rest = ledger.marks.step(
                    count, now, duration, rest=rest, seen=known, touched=touched, baseline=baseline
                )
            index = bin_of(edges, duration)
            word = packed(duration, clean=False)
        finally:
            early -= 1
        ring[done % 64] = word
        slot[10] = duration
        slot[9] = before = now if now > before else before
        slot[8] = done = done + 1
        if touched:
            touched_bins[index - 1] += 1
        if baseline:
            on_baseline(count, 0 if touched or not last else rest)
        if count == warm_at:
            tell_warm(now, count)

    def eager_until(count: int) -> None:
        nonlocal eager, warm_at, regular, seen
        eager, warm_at, regular = count, count + warm_steps, 0
        if slot[8] and seen != _TOUCHED:
            seen = _BASELINE if count > slot[8] else words[0]

    def tell_warm(now: int, count: int) -> None:
        nonlocal suspect
        suspect = 0
        ledger.marks.warm(now, count - warm_steps)
        on_warm()

    def failed(error: Exception) -> None:
        report("step", error)

    def look() -> None:
        """Compile activity has begun: no step is regular until one was looked at closely."""
        nonlocal regular, suspect
        regular = suspect = 0

    def lead(optimizer_id: int) -> None:
        nonlocal leader, regular
        leader, regular = optimizer_id, 0

    def bind(new_buffer: Buffer, new_ledger: CompilerActivity) -> None:
        nonlocal slot, ledger, words, early, compiled, begun, leader, regular, seen, warm_at
        nonlocal ring, touched_bins, suspect, eager, background, done, before, low, high
        slot, touched_bins = _hot_words(new_buffer), record.histograms(new_buffer)[1]
        ring = slot[-64:]
        done, before, low, high = slot[8], slot[9], 0, 0
        if new_ledger is not ledger:
            ledger, words = new_ledger, new_ledger.words
            early = compiled = begun = leader = regular = eager = background = 0
            seen, warm_at = _TOUCHED, warm_steps
            suspect = 0
            ledger.on_begin(look)

    def wrap_rare(wrap: Callable[[Any], Any]) -> None:
        nonlocal ask, mark, failed
        ask, mark, failed = wrap(ask), wrap(mark), wrap(failed)

    ledger.on_begin(look)
    return Steps(on_step=on_step, lead=lead, bind=bind, wrap_rare=wrap_rare, baseline=eager_until)
