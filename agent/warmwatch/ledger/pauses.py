"""Saving, evaluation and waiting for data: time that belongs to no step.

Nested saves count once. A save within an evaluation counts as saving only. Saves on a thread other
than the training's do not pause it: they are recorded as background saves. Compile time inside a
pause is subtracted from the step only once.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warmwatch.ledger.counters import CounterStore, FirstStep
from warmwatch.shared.record import COMPILE_INDEX as AT

if TYPE_CHECKING:
    from warmwatch.hooks.installation import Hooks

SAVING, EVALUATING = "saving", "evaluating"
# kind -> its counters: the sum, the begin of the present one, the last end, and the number ended
COUNTERS = {
    SAVING: ("saving_ns", "saving_since_ns", "saved_ns", None),
    EVALUATING: ("evaluating_ns", "evaluating_since_ns", "evaluated_ns", "evaluations"),
    "between_cells": (
        *("between_cells_ns", "between_cells_since_ns", "between_cells_until_ns"),
        None,
    ),
}

_MOST_ENDED = 100  # pauses between two steps whose times are stored


def training_thread() -> int:
    """The thread of the training's own code, called where a step is marked.

    An optimizer that runs within the backward of a GPU does so on autograd's thread, which
    ``threading`` did not start. The training waits for it, most likely on the main thread.
    """
    this = threading.get_ident()
    value = getattr(threading, "_active", {}).get(this)  # without the lock of ``enumerate``
    ours = value is not None and type(value).__name__ != "_DummyThread"
    return this if ours else threading.main_thread().ident or this


class _Background:
    """Saves on threads that do not mark steps."""

    def __init__(self, block: array[int]) -> None:
        self._block, self._depths = block, dict[int, int]()

    def holds(self, thread: int) -> bool:
        return thread in self._depths

    def began(self, thread: int, now: int) -> bool:
        """Whether a counter changed."""
        first = not self._depths
        self._depths[thread] = self._depths.get(thread, 0) + 1
        if first:
            self._block[AT["background_saving_since_ns"]] = now
        return first

    def ended(self, thread: int, now: int) -> bool:
        """Whether a counter changed."""
        self._depths[thread] -= 1
        if not self._depths[thread]:
            del self._depths[thread]
        if self._depths:
            return False
        since = self._block[AT["background_saving_since_ns"]]
        self._block[AT["background_saving_ns"]] += max(0, now - since)
        self._block[AT["background_saving_since_ns"]] = 0
        return True


class _Pause:
    """The pauses of one kind.

    Attributes:
        by_eval: whether ``model.eval()`` began the present one.
    """

    def __init__(
        self, block: array[int], total: str, since: str, until: str, count: str | None
    ) -> None:
        self._block = block
        self._total, self._since, self._until = AT[total], AT[since], AT[until]
        self._count = None if count is None else AT[count]
        self._thread: int | None = None
        self._depth = self._steps = 0
        self.by_eval = False
        self._latest = 0, 0  # step count at the begin of the latest ones, and their length

    def began(self, thread: int, now: int, training: int | None, steps: int, by_eval: bool) -> bool:
        if self.is_over(steps):
            self._thread = None
        if self._thread == thread:
            if by_eval:
                return False
            # A framework that has called ``eval()`` ends what it reports itself: Lightning restores
            # the mode without ``train()``.
            self._depth += not self.by_eval
            self.by_eval = False
            return False
        if self._thread is not None or training not in (None, thread):
            return False
        self._thread, self._depth, self._steps, self.by_eval = thread, 1, steps, by_eval
        self._block[self._since] = now
        return True

    def is_over(self, steps: int) -> bool:
        """Whether ``steps`` rose since the present one began: its end was lost."""
        return self._thread is not None and self._steps != steps

    def forget(self) -> bool:
        """End the present pause, whose end was lost; returns whether a counter changed."""
        self._thread, self._block[self._since] = None, 0
        return True

    def ended(self, thread: int, now: int) -> int:
        """The begin of the pause that ends now; 0 if none ends."""
        if self._thread != thread:
            return 0
        self._depth -= 1
        if self._depth:
            return 0
        block, self._thread = self._block, None
        since = self._counted(now) or now
        block[self._until] = now
        if self._count is not None:
            block[self._count] += 1
        return since

    def _counted(self, now: int) -> int:
        """Count the present one up to ``now``; returns its begin, 0 if it is interrupted."""
        since = self._block[self._since]
        took = max(0, now - since) if since else 0
        self._block[self._total] += took
        self._latest = self._steps, took + self.behind(self._steps)
        self._block[self._since] = 0
        return since

    def interrupted(self, now: int, steps: int) -> int:
        """Another kind begins within the present one; returns its begin, 0 if there is none."""
        return 0 if self._thread is None or self.is_over(steps) else self._counted(now)

    def goes_on(self, now: int, steps: int) -> None:
        """The other kind ended."""
        if self._thread is not None and not self.is_over(steps):
            self._block[self._since] = now

    def behind(self, steps: int) -> int:
        """Nanoseconds of pauses after step number ``steps`` and before the next one."""
        steps_then, took = self._latest
        return took if steps_then == steps else 0


class Pausing:
    """Counts pauses. ``began`` and ``ended`` are the handlers of these facts.

    Attributes:
        training: the thread that marks the steps.
    """

    def __init__(self, counters: CounterStore, pytorch: Hooks, first_step: FirstStep) -> None:
        self._counters, self._block, self._store = counters, counters.block, counters.store
        self._pytorch, self._first_step = pytorch, first_step
        self._kinds = {what: _Pause(self._block, *names) for what, names in COUNTERS.items()}
        self._background = _Background(self._block)
        self._ended: list[tuple[int, int]] = []  # begins and ends since the last step, in order
        # when the present evaluation began: compiled calls; activities, batches, evaluating_ns
        self._calls: int | None = None
        self._before = (0, 0, 0)
        self.training: int | None = None

    def began(self, _fact: str, now: int, values: Mapping[str, Any]) -> None:
        """A thread began a pause; ``by_eval``: ``model.eval()`` did.

        If ``steps`` rose since the previous pause began, its end was lost, on any thread: a signal
        handler may have raised before it was reported.
        """
        what, thread, steps = values["what"], values["thread"], values["steps"]
        if what == SAVING and self.training not in (None, thread):
            self._paused(self._background.began(thread, now))
            return
        by_eval = values.get("by_eval", False)
        changed = self._kinds[what].began(thread, now, self.training, steps, by_eval)
        if changed and what == SAVING:
            self._add(self._kinds[EVALUATING].interrupted(now, steps), now)
        elif changed and what == EVALUATING:
            block = self._block
            self._calls = self._pytorch.compiled_calls(True)
            self._before = block[AT["ended"]], self._store.batches(), block[AT["evaluating_ns"]]
        self._paused(changed)

    def ended(self, _fact: str, now: int, values: Mapping[str, Any]) -> None:
        """A thread ended the pause that it began last; ``by_train``: ``model.train()`` did.

        If ``steps`` rose since, it was over already, and its end is unknown. ``by_train`` ends no
        evaluation that a framework or the user reported: that has an end of its own.
        """
        what, thread, steps = values["what"], values["thread"], values["steps"]
        kind, evaluations = self._kinds[what], self._block[AT["evaluations"]]
        if values.get("by_train") and not kind.by_eval:
            return
        if what == SAVING and self._background.holds(thread):
            changed = self._background.ended(thread, now)
        elif kind.is_over(steps):
            changed = kind.forget()
        else:
            since = kind.ended(thread, now)
            self._add(since, now)
            if since and what == SAVING:
                self._kinds[EVALUATING].goes_on(now, steps)
            changed = bool(since)
        if changed:
            self._counters.on_begin()  # the step around it is not regular
            if self._block[AT["evaluations"]] > evaluations:
                self._first_step.evaluated(now)
                self._evaluated()
        self._paused(changed)

    def _evaluated(self) -> None:
        """Count what the evaluation that has just ended called, and its batches."""
        block, calls = self._block, self._pytorch.compiled_calls(False)
        block[AT["uncompiled_evaluations"]] += calls is not None and calls == self._calls
        ended, batches, evaluating_ns = self._before
        batches = self._store.batches() - batches
        if block[AT["begun"]] == ended and batches > 0:  # nothing compiled in it
            block[AT["evaluation_batches"]] += batches
            block[AT["evaluation_batches_ns"]] += block[AT["evaluating_ns"]] - evaluating_ns

    def _paused(self, changed: bool) -> None:
        if changed:
            self._store.publish(self._block)

    def _add(self, since: int, now: int) -> None:
        """A pause from ``since`` to ``now``, or a part of one; 0: none."""
        if since:
            # nested or overlapping pauses are one
            while self._ended and self._ended[-1][1] > since:
                since = min(since, self._ended.pop()[0])
            self._ended.append((since, now))
            del self._ended[:-_MOST_ENDED]

    def length_since(self, step_ns: int) -> int:
        """Total length of the pauses that began after a step, marked at ``step_ns``, and ended."""
        took = sum(end - begin for begin, end in self._ended if begin >= step_ns)
        self._ended.clear()
        return took

    def behind(self, steps: int) -> dict[str, int]:
        """Nanoseconds of each kind after step number ``steps`` and before the next one."""
        return {what: pause.behind(steps) for what, pause in self._kinds.items()}

    def resumed(self, now: int, last: int, duration: int) -> None:
        """A clean step was marked that is shorter than the time since the previous one."""
        block = self._block
        block[AT["clean_sum_ns"]] += max(0, last - block[AT["irregular_step_ns"]]) + duration
        block[AT["irregular_step_ns"]] = max(block[AT["irregular_step_ns"]], now)
        self._store.publish(block)
