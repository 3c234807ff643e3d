"""The hot path: what happens at every step, and what little it needs to know.

A regular step, one that is not the first and that no compile activity touched, costs a clock read,
one packed store into the slot and one histogram bin. All else leaves by one comparison.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Callable
from time import monotonic_ns

from warmwatch import record
from warmwatch._ledger import Ledger
from warmwatch.record import BOUNDS_NS, COMPILE_INDEX, STEPS_OFFSET, STEPS_STRUCT

_BEGUN = COMPILE_INDEX["begun"]
_SINCE = COMPILE_INDEX["active_since_ns"]
_FIRST_BEGIN = COMPILE_INDEX["first_begin_ns"]
_TOUCHED = -1  # a number of activities that never is: the next step is looked at closely
assert _BEGUN == 0, "the hot path reads words[0]: a constant costs less than a name"


def make_mark(
    buffer: bytearray | mmap.mmap,
    ledger: Ledger,
    *,
    warm_steps: int,
    settled: Callable[[], None],
    clock: Callable[[], int] = monotonic_ns,
) -> Callable[[], None]:
    """A function that marks a step now, into ``buffer``.

    A closure, since cells are the cheapest state that Python has. ``settled`` is called at the
    K-th clean step in a row, after everything is stored.
    """
    words = ledger.words
    store, offset = STEPS_STRUCT.pack_into, STEPS_OFFSET
    clean_bins = _bins(buffer, record.CLEAN_BINS_OFFSET)
    compile_bins = _bins(buffer, record.COMPILE_BINS_OFFSET)
    steps = last = longest = compiled = begun = 0
    seen, warm_at = _TOUCHED, warm_steps
    low = high = index = count = 0  # the bin of the last step: the next one is likely in it too

    def mark() -> None:
        nonlocal steps, last, longest, count
        now = clock()
        if words[0] != seen:
            look_closely(now)
            return
        duration = now - last
        last = now
        steps += 1
        if duration > longest:
            longest = duration
        store(buffer, offset, steps, now, duration, longest, steps)
        if low < duration <= high:
            count += 1
            clean_bins[index] = count
        else:
            change_bin(duration)
        if steps == warm_at:
            ledger.warm(now, steps - warm_steps)
            settled()

    def change_bin(duration: int) -> None:
        nonlocal low, high, index, count
        index = bisect_left(BOUNDS_NS, duration)
        low = BOUNDS_NS[index - 1] if index else -1
        high = BOUNDS_NS[index] if index < len(BOUNDS_NS) else 1 << 63
        count = clean_bins[index] + 1
        clean_bins[index] = count

    def look_closely(now: int) -> None:
        """The first step, one that held activity, or one after a step in which some was on."""
        nonlocal steps, last, longest, compiled, begun, seen, warm_at
        ledger.settle()
        active, first = words[_SINCE] != 0, steps == 0
        touched = active or words[_BEGUN] != begun or (seen == _TOUCHED and not first)
        start = last or (words[_FIRST_BEGIN] if touched else 0)
        duration = now - start if start else 0
        total = ledger.compile_ns()
        if last:
            longest = max(longest, duration - (total - compiled))
        steps += 1
        last, compiled, begun = now, total, words[_BEGUN]
        seen = _TOUCHED if active else begun
        if touched:
            warm_at = steps + warm_steps
            compile_bins[bisect_left(BOUNDS_NS, duration)] += 1
        ledger.step(steps, now, duration, seen=begun, touched=touched)
        store(buffer, offset, steps, now, duration, longest, steps)
        if steps == warm_at:
            ledger.warm(now, steps - warm_steps)
            settled()

    return mark


def _bins(buffer: bytearray | mmap.mmap, offset: int) -> memoryview:
    return memoryview(buffer)[offset : offset + 8 * record.BINS].cast("Q")
