"""Saving, evaluation and waiting for data: time that belongs to no step.

Nested saves count once. Saves on other threads than that of the steps are no pauses: they are
recorded as background saves. Compile time inside a pause is not subtracted twice from the step.
"""

from __future__ import annotations

from warmwatch.ledger.counters import CounterStore
from warmwatch.shared.record import COMPILE_INDEX as AT

SAVING = "saving"
# what -> its words: the sum, the begin of the one in progress, the last end, and how many ended
WORDS = {
    SAVING: ("saving_ns", "saving_since_ns", "saved_ns", None),
    "evaluating": ("evaluating_ns", "evaluating_since_ns", "evaluated_ns", "evaluations"),
    "between_cells": (
        *("between_cells_ns", "between_cells_since_ns", "between_cells_until_ns"),
        None,
    ),
}

_KEPT = 100  # of those between two steps


class Pauses:
    """Their words among those of the rare block. One fact at a time, in the ledger's turn."""

    def __init__(self, words: list[int]) -> None:
        self._kinds = {what: _Pause(words, *names) for what, names in WORDS.items()}
        self._background = _Background(words)
        self._ended: list[tuple[int, int]] = []  # begins and ends since the last step, in order

    def began(self, what: str, thread: int, now: int, training: int | None, steps: int) -> bool:
        """``thread`` began it; whether a word changed. ``training``: that of the steps.

        Where there were more ``steps`` since, the end of the one before was lost, whoever began
        it: a signal handler may have raised where it would have been told.
        """
        if what == SAVING and training not in (None, thread):
            return self._background.began(thread, now)
        return self._kinds[what].began(thread, now, training, steps)

    def ended(self, what: str, thread: int, now: int, steps: int) -> bool:
        """``thread`` ended what it began last; whether a word changed.

        Where there were more ``steps`` since, it was over already, and nobody knows when.
        """
        kind = self._kinds[what]
        if what == SAVING and self._background.holds(thread):
            return self._background.ended(thread, now)
        if kind.is_over(steps):
            return kind.forget()
        since = kind.ended(thread, now)
        if since:
            # one within the other, or begun before it, is one pause
            while self._ended and self._ended[-1][1] > since:
                since = min(since, self._ended.pop()[0])
            self._ended.append((since, now))
            del self._ended[:-_KEPT]
        return bool(since)

    def since(self, step: int) -> int:
        """How long those took that began after the last ``step`` was marked and have ended."""
        took = sum(end - begin for begin, end in self._ended if begin >= step)
        self._ended.clear()
        return took

    def behind(self, steps: int) -> dict[str, int]:
        """Of each kind, the nanoseconds after so many steps and before the next one."""
        return {what: one.behind(steps) for what, one in self._kinds.items()}


class _Background:
    """Saves on other threads than that of the steps."""

    def __init__(self, words: list[int]) -> None:
        self._words, self._depths = words, dict[int, int]()

    def holds(self, thread: int) -> bool:
        return thread in self._depths

    def began(self, thread: int, now: int) -> bool:
        """Whether a word changed."""
        first = not self._depths
        self._depths[thread] = self._depths.get(thread, 0) + 1
        if first:
            self._words[AT["background_saving_since_ns"]] = now
        return first

    def ended(self, thread: int, now: int) -> bool:
        """Whether a word changed."""
        self._depths[thread] -= 1
        if not self._depths[thread]:
            del self._depths[thread]
        if self._depths:
            return False
        since = self._words[AT["background_saving_since_ns"]]
        self._words[AT["background_saving_ns"]] += max(0, now - since)
        self._words[AT["background_saving_since_ns"]] = 0
        return True


class _Pause:
    """One kind of it."""

    def __init__(
        self, words: list[int], total: str, since: str, until: str, count: str | None
    ) -> None:
        self._words = words
        self._total, self._since, self._until = AT[total], AT[since], AT[until]
        self._count = None if count is None else AT[count]
        self._thread: int | None = None
        self._depth = self._steps = 0
        self._latest = 0, 0  # behind how many steps the last ones began, and how long they took

    def began(self, thread: int, now: int, training: int | None, steps: int) -> bool:
        if self.is_over(steps):
            self._thread = None
        if self._thread == thread:
            self._depth += 1
            return False
        if self._thread is not None or training not in (None, thread):
            return False
        self._thread, self._depth, self._steps = thread, 1, steps
        self._words[self._since] = now
        return True

    def is_over(self, steps: int) -> bool:
        """Whether there were more steps since the one in progress began: its end was lost."""
        return self._thread is not None and self._steps != steps

    def forget(self) -> bool:
        """The one in progress is over, and its end was lost; a word changes."""
        self._thread, self._words[self._since] = None, 0
        return True

    def ended(self, thread: int, now: int) -> int:
        """When the one that is over now had begun; 0 where none is."""
        if self._thread != thread:
            return 0
        self._depth -= 1
        if self._depth:
            return 0
        words, self._thread = self._words, None
        since = words[self._since]
        took = max(0, now - since)
        words[self._total] += took
        self._latest = self._steps, took + self.behind(self._steps)
        words[self._since] = 0
        words[self._until] = now
        if self._count is not None:
            words[self._count] += 1
        return since

    def behind(self, steps: int) -> int:
        """Nanoseconds of it after so many steps and before the next one."""
        steps_then, took = self._latest
        return took if steps_then == steps else 0


class Pausing:
    """Pauses as they begin and end.

    Attributes:
        pauses: those since the last step. training: the thread that marks the steps.
    """

    def __init__(self, book: CounterStore) -> None:
        self._book, self._words, self._store = book, book.words, book.store
        self.pauses = Pauses(book.words)
        self.training: int | None = None

    def began(self, what: str, thread: int, now: int, steps: int) -> None:
        self._paused(self.pauses.began(what, thread, now, self.training, steps))

    def ended(self, what: str, thread: int, now: int, steps: int) -> None:
        if changed := self.pauses.ended(what, thread, now, steps):
            self._book.on_begin()  # the step that it was in is no regular one
        self._paused(changed)

    def _paused(self, changed: bool) -> None:
        if changed:
            self._store.publish(self._words)

    def resumed(self, now: int, last: int, duration: int) -> None:
        """A clean step was marked that is shorter than the time since the one before it."""
        words = self._words
        words[AT["clean_sum_ns"]] += max(0, last - words[AT["irregular_step_ns"]]) + duration
        words[AT["irregular_step_ns"]] = max(words[AT["irregular_step_ns"]], now)
        self._store.publish(words)
