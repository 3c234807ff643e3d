"""Batches of a DataLoader: how many, when the last one, and how long the loop waited.

They show progress without optimizer steps, as in an evaluation, and how long the loop waits for its
data. The waiting time is the time inside ``next()``. A thread that fetches or evaluates batches
while another one trains has none: how long the training waits for it is not known. A wait within
an evaluation is part of the evaluation only. A noticeable wait in the present step is also counted
separately.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Protocol

from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX, STEPS_INDEX
from warmwatch.steps.steps import Buffer

_COUNT = STEPS_INDEX["batches"]
_LAST = STEPS_INDEX["last_batch_ns"]
_WAIT = STEPS_INDEX["batch_wait_ns"]
_STEPS = STEPS_INDEX["steps"]
_LAST_STEP = STEPS_INDEX["last_step_ns"]
_EVALUATING = COMPILE_INDEX["evaluating_since_ns"]
_FELT_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class Behind:
    """The batches between two steps: their number, their number in all, and the time that the
    training waited for them. A separate thread that fetches them does not make the training
    wait."""

    batches: int
    all_batches: int
    wait_ns: int


@dataclass(frozen=True, slots=True)
class Batches:
    """The functions that share the count.

    Attributes:
        on_batch: a batch arrived; its argument is the monotonic time of the request.
        bind: uses another buffer and ledger from now on; ``reset`` clears the counts (after a
            fork).
        behind: the batches after a step and before the next one, with this thread's waiting
            time; ``None`` if there were none.
    """

    on_batch: Callable[[int], None]
    bind: Callable[..., None]
    behind: Callable[[int], Behind | None]


class _Thread(threading.local):
    """What is known of the calling thread. ``fetched_ns``: when its last batch arrived."""

    fetched_ns = 0


class Pausing(Protocol):
    """``training``: the thread that marks the steps; ``None`` before the first."""

    training: int | None


class Ledger(Protocol):
    """What the count needs of the ledger: the compile block, and the thread that marks steps."""

    block: array[int]

    @property
    def pausing(self) -> Pausing:
        """It may be another object after a fork."""


def make_batches(
    buffer: Buffer, ledger: Ledger, *, clock: Callable[[], int] = monotonic_ns
) -> Batches:
    """The functions, as closures like those of the steps.

    A batch calls no other function of the agent: Dynamo would count it among its frames.
    """
    hot, block, pausing = record.hot_words(buffer), ledger.block, ledger.pausing
    batches = waited = 0
    step = before = felt = 0  # steps at the last batch, batches before the first of these
    waiter: int | None = None
    free = threading.Lock()  # only tried, never waited for
    take, let_go = free.acquire, free.release
    this_thread = threading.get_ident
    own = _Thread()

    def on_batch(requested_ns: int) -> None:
        nonlocal batches, waited, step, before, felt, waiter
        if not take(False):  # a keyword argument costs more
            return  # another thread counts a batch right now: both must be counted
        try:
            now, took = clock(), 0
            if pausing.training is None or pausing.training == this_thread():
                before_ns = own.fetched_ns
                # one DataLoader may iterate over another, whose waits are counted already
                took = now - (requested_ns if requested_ns > before_ns else before_ns)
                own.fetched_ns = now
                if block[_EVALUATING] > hot[_LAST_STEP]:  # a step since ends it
                    took = 0
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

    def bind(new_buffer: Buffer, ledger: Ledger, *, reset: bool = False) -> None:
        nonlocal hot, block, pausing, batches, waited, take, let_go, step, before, felt, own
        hot, block, pausing = record.hot_words(new_buffer), ledger.block, ledger.pausing
        if reset:
            batches = waited = step = before = felt = 0
            free, own = threading.Lock(), _Thread()  # a thread of the parent may hold the lock
            take, let_go = free.acquire, free.release

    def behind(steps: int) -> Behind | None:
        if steps != step or batches == before:
            return None
        wait_ns = felt if waiter == this_thread() else 0
        return Behind(batches=batches - before, all_batches=batches, wait_ns=wait_ns)

    return Batches(on_batch=on_batch, bind=bind, behind=behind)
