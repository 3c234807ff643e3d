"""Batches of a DataLoader: how many, when the last one, and how long the loop waited.

They show that a training moves where no optimizer steps, as in an evaluation, and how long it
waits for its data. The waiting time is what was spent in ``next()``, on whichever thread asked.
Of the step under way it is kept apart too, where a wait was long enough to be felt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns

from warmwatch.shared import record
from warmwatch.shared.record import STEPS_INDEX
from warmwatch.steps.steps import Buffer

_COUNT = STEPS_INDEX["batches"]
_LAST = STEPS_INDEX["last_batch_ns"]
_WAIT = STEPS_INDEX["batch_wait_ns"]
_STEPS = STEPS_INDEX["steps"]
_FELT_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class Behind:
    """The batches after a step and before the next: how many, of how many in all, and how long the
    training waited for them. A thread of its own that fetches them keeps nobody waiting."""

    batches: int
    all_batches: int
    wait_ns: int


@dataclass(frozen=True, slots=True)
class Batches:
    """The functions that share the count.

    Attributes:
        on_batch: a batch was handed out that was asked for at this monotonic time.
        bind: stores into another buffer from now on; ``anew`` in another process.
        behind: what was handed out after so many steps, before the next one; of waiting, what this
            thread did; ``None`` where nothing was.
    """

    on_batch: Callable[[int], None]
    bind: Callable[..., None]
    behind: Callable[[int], Behind | None]


def make_batches(buffer: Buffer, *, clock: Callable[[], int] = monotonic_ns) -> Batches:
    """The functions, as closures like those of the steps.

    No other function of ours is called at a batch, which Dynamo would count among the frames that
    it looks at.
    """
    hot = record.hot_words(buffer)
    batches = waited = 0
    step = before = felt = 0  # steps when the last batch came, batches before the first of these
    waiter: int | None = None
    free = threading.Lock()  # only ever tried, never waited for
    take, let_go = free.acquire, free.release
    this_thread = threading.get_ident

    def on_batch(asked: int) -> None:
        nonlocal batches, waited, step, before, felt, waiter
        if not take(False):  # by keyword it costs more
            return  # another thread counts one at this moment: neither may fall behind
        try:
            now = clock()
            took = now - asked
            waited += took
            if hot[_STEPS] != step:
                step, before, felt = hot[_STEPS], batches, 0
            if took > _FELT_NS:
                felt, waiter = felt + took, this_thread()
            batches += 1
            hot[_WAIT] = waited
            hot[_LAST] = now
            hot[_COUNT] = batches
        finally:
            let_go()

    def bind(new_buffer: Buffer, *, anew: bool = False) -> None:
        nonlocal hot, batches, waited, take, let_go, step, before, felt
        hot = record.hot_words(new_buffer)
        if anew:
            batches = waited = step = before = felt = 0
            free = threading.Lock()  # a thread that the parent had may have held the other
            take, let_go = free.acquire, free.release

    def behind(steps: int) -> Behind | None:
        if steps != step or batches == before:
            return None
        wait_ns = felt if waiter == this_thread() else 0
        return Behind(batches=batches - before, all_batches=batches, wait_ns=wait_ns)

    return Batches(on_batch=on_batch, bind=bind, behind=behind)
