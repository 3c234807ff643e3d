"""Batches: how many a DataLoader handed to the loop, when the last one, and how long that took.

They show that a training moves where no optimizer steps, as in an evaluation, and how long it
waits for its data. The waiting time is what was spent in ``next()``, on whichever thread asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns

from warmwatch import record
from warmwatch._steps import Buffer
from warmwatch.record import STEPS_INDEX

_COUNT = STEPS_INDEX["batches"]
_LAST = STEPS_INDEX["last_batch_ns"]
_WAIT = STEPS_INDEX["batch_wait_ns"]


@dataclass(frozen=True, slots=True)
class Batches:
    """The functions that share the count.

    Attributes:
        on_batch: a batch was handed out that was asked for at this monotonic time.
        bind: stores into another buffer from now on; ``anew`` in another process.
    """

    on_batch: Callable[[int], None]
    bind: Callable[..., None]


def make_batches(buffer: Buffer, *, clock: Callable[[], int] = monotonic_ns) -> Batches:
    """The functions, as closures like those of the steps.

    No other function of ours is called at a batch, which Dynamo would count among the frames that
    it looks at.
    """
    hot = record.hot_words(buffer)
    batches = waited = 0
    free = threading.Lock()  # only ever tried, never waited for

    def on_batch(asked: int) -> None:
        nonlocal batches, waited
        if not free.acquire(blocking=False):
            return  # another thread counts one at this moment: neither may fall behind
        try:
            now = clock()
            waited += now - asked
            batches += 1
            hot[_WAIT] = waited
            hot[_LAST] = now
            hot[_COUNT] = batches
        finally:
            free.release()

    def bind(new_buffer: Buffer, *, anew: bool = False) -> None:
        nonlocal hot, batches, waited, free
        hot = record.hot_words(new_buffer)
        if anew:
            batches = waited = 0
            free = threading.Lock()  # a thread that the parent had may have held it

    return Batches(on_batch=on_batch, bind=bind)
