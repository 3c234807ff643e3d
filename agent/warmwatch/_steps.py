"""The hot path: what happens at every step, and what little it needs to know.

A regular step, one that is not the first and that no compile activity touched, costs a clock read,
three words stored into the slot and one histogram bin. All else leaves by one comparison: a call
that is no regular one of the leading optimizer, the first step, a step that held activity.

Several threads may mark steps. The interpreter changes threads where something is called or a loop
turns, nowhere else, so from the clock's answer to the search for the bin, and from there to the
comparison with ``warm_at``, one thread is alone, with no lock: no count and no bin is lost. What
may be is that another thread has marked a later step since the clock was read: that step then has
no length.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from warmwatch import record
from warmwatch._guard import report
from warmwatch._ledger import Ledger
from warmwatch.record import BOUNDS_NS, COMPILE_INDEX, STEPS_INDEX

_BEGUN = COMPILE_INDEX["begun"]
_SINCE = COMPILE_INDEX["active_since_ns"]
_FIRST_BEGIN = COMPILE_INDEX["first_begin_ns"]
_TOUCHED = -1  # a number of activities that never is: the next step is looked at closely
assert _BEGUN == 0, "the hot path reads words[0]: a constant costs less than a name"
_HOT = ("last_duration_ns", "last_step_ns", "steps")
assert [STEPS_INDEX[name] for name in _HOT] == [2, 1, 0], "likewise hot[0], hot[1], hot[2]"

Buffer = bytearray | mmap.mmap


@dataclass(frozen=True, slots=True)
class Steps:
    """The functions that share the step's state.

    Attributes:
        on_step: the optimizers' post hook; called with ``None`` it marks a step by hand.
        lead: says whose calls are steps: an optimizer's ``id``, that of ``None``, or 0 for
            none, so that each call is asked about.
        bind: stores into another buffer from now on; with another ledger, begins anew.
    """

    on_step: Callable[[Any, Any, Any], None]
    lead: Callable[[int], None]
    bind: Callable[[Buffer, Ledger], None]


def make_steps(  # noqa: C901 - closures that share cells have to stand in one function
    buffer: Buffer,
    ledger: Ledger,
    *,
    is_step: Callable[[Any], bool],
    warm_steps: int,
    on_warm: Callable[[], None],
    clock: Callable[[], int] = monotonic_ns,
) -> Steps:
    """The step functions, as closures: cells are the cheapest state that Python has.

    Args:
        buffer: where the slot is, or plain memory. ledger: what the compiler does.
        is_step: whether a call by an optimizer that does not lead is a step all the same.
        warm_steps: K. on_warm: called at the K-th clean step in a row, when all is stored.
    """
    words = ledger.words
    bin_of, bounds = bisect_left, BOUNDS_NS
    hot = record.hot_words(buffer)
    clean_bins, compile_bins = record.histograms(buffer)
    steps = last = compiled = begun = leader = 0
    seen, warm_at = _TOUCHED, warm_steps

    def on_step(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001 - torch's signature
        nonlocal steps, last
        try:
            if id(optimizer) != leader and not is_step(optimizer):
                return
            now = clock()
            if words[0] != seen:
                look_closely(now)
                return
            duration = now - last
            if duration < 0:
                duration, now = 0, last
            last = now
            steps = count = steps + 1
            hot[2] = duration
            hot[1] = now
            hot[0] = count
            clean_bins[bin_of(bounds, duration)] += 1
            if count == warm_at:
                tell_warm(now, count)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("step", error)

    def look_closely(now: int) -> None:
        """The first step, one that held activity, or one after a step in which some was on."""
        nonlocal steps, last, compiled, begun, seen, warm_at
        ledger.abandon()
        total = ledger.compile_ns()
        # The count before the state: what begins between the two is then seen by its count at the
        # next step. The ledger stores the other way round, so that a count is never ahead of it.
        known, active = words[0], words[_SINCE] != 0
        steps = count = steps + 1
        touched = active or known != begun or (seen == _TOUCHED and count > 1)
        now = now if now > last else last
        start = last or (words[_FIRST_BEGIN] if touched else 0)
        duration = now - start if start else 0
        rest = duration - (total - compiled) if last else 0
        last, compiled, begun = now, total, known
        seen = _TOUCHED if active else known
        if touched:
            warm_at = count + warm_steps
            compile_bins[bin_of(bounds, duration)] += 1
        elif count > 1:  # meanwhile another thread's step was looked at: this one is regular
            clean_bins[bin_of(bounds, duration)] += 1
        if touched or count == 1:
            ledger.step(count, now, duration, rest=rest, seen=known, touched=touched)
        hot[2], hot[1], hot[0] = duration, last, steps  # after what the ledger says of the step
        if count == warm_at:
            tell_warm(now, count)

    def tell_warm(now: int, count: int) -> None:
        ledger.warm(now, count - warm_steps)
        on_warm()

    def lead(optimizer_id: int) -> None:
        nonlocal leader
        leader = optimizer_id

    def bind(new_buffer: Buffer, new_ledger: Ledger) -> None:
        nonlocal hot, clean_bins, compile_bins, ledger, words, steps, last
        nonlocal compiled, begun, leader, seen, warm_at
        hot = record.hot_words(new_buffer)
        clean_bins, compile_bins = record.histograms(new_buffer)
        if new_ledger is not ledger:
            ledger, words = new_ledger, new_ledger.words
            steps = last = compiled = begun = leader = 0
            seen, warm_at = _TOUCHED, warm_steps

    return Steps(on_step=on_step, lead=lead, bind=bind)
