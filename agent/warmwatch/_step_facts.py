"""What step marks tell the ledger: all but the regular ones, which tell nothing.

The half of the ledger that the step functions call (``_steps.py``). As in the other, what only this
thread and this moment know is read here, and the fact is handed in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from warmwatch._applied.answers import Answers
from warmwatch._applied.book import Book
from warmwatch._applied.pauses import Pausing
from warmwatch._applied.steps import IrregularSteps
from warmwatch._inbox import Inbox

if TYPE_CHECKING:
    from warmwatch._batches import Behind


class StepFacts:
    """Facts of steps; ``inbox`` and ``clock`` are the ledger's."""

    def __init__(
        self,
        book: Book,
        answers: Answers,
        pausing: Pausing,
        inbox: Inbox,
        clock: Callable[[], int],
    ) -> None:
        self._book, self._inbox, self._clock = book, inbox, clock
        self._pausing, self._pauses = pausing, pausing.pauses
        self._steps = IrregularSteps(book, answers, pausing.pauses)

    def resumed(self, now: int, last: int, duration: int) -> int:
        """The length of a clean step, which is not the first, without the pauses in it.

        ``now``: its mark; ``last``: that of the one before; ``duration``: between the two.
        """
        without = duration - min(duration, self._pauses.since(last))
        if without != duration:
            self._inbox.post(lambda: self._pausing.resumed(now, last, without))
        return without

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
        """An irregular step was marked: the first one, one that held activity, or a ``baseline``'s.

        ``seen`` activities had begun by then; ``touched``: some were within this step, which
        without them took ``rest`` nanoseconds. Gives back what is left of these without pauses.
        """
        before = now - duration if steps > 1 else 0
        # a gap that is explained is no measure of a stall; what compiled in it is taken off twice
        rest = max(0, rest - self._pauses.since(before))
        self._pausing.training = threading.get_ident()
        self._inbox.post(lambda: self._steps.irregular(now, before, seen))
        if touched:
            self._inbox.post(lambda: self._steps.touched(steps, duration))
        if touched or baseline:
            self._inbox.post(lambda: self._steps.not_clean(steps, rest))
        if steps == 1:
            self._inbox.post(lambda: self._steps.first(now, duration, baseline=baseline))
        seconds = duration / 1e9 if duration else None
        clean = not (touched or baseline)
        values = {"n": steps, "seconds": seconds, "clean": clean}
        if touched or steps == 1:
            self._inbox.post(lambda: self._book.noted("step", now, values))
        else:
            self._inbox.post(lambda: self._book.store.publish(self._book.words))
        return rest

    def passed(self, seen: int) -> None:
        """A clean step was marked when ``seen`` activities had begun: it waited for none."""
        self._inbox.post(lambda: self._steps.passed(seen))

    def held_up(self, before: int, steps: int) -> None:
        """The step after number ``steps``, marked at ``before``, waited for what was background."""
        self._inbox.post(lambda: self._steps.held_up(before, steps))

    def baseline(self, steps: int, median_ns: int | None) -> None:
        """The steps that were to run eagerly are over; ``median_ns``: of those that did."""
        now = self._clock()
        values = {"steps": steps, "median_ns": median_ns}
        self._inbox.post(lambda: self._book.noted("baseline", now, values))

    def long_step(
        self, steps: int, now: int, duration: int, usual: int, behind: Behind | None
    ) -> None:
        """A clean step took far longer than usual ones; ``behind``: the batches within it."""
        values = {"n": steps, "seconds": duration / 1e9, "usual": usual / 1e9}
        if behind is not None:
            values["data"] = behind.wait_ns / 1e9
            values["batches"] = behind.batches
            values["batches_before"] = behind.all_batches - behind.batches
        self._inbox.post(lambda: self._steps.long(now, values))

    def settled(self, by: str, at: int | None = None, activities: int | None = None) -> None:
        """The warm-up ended without steps, now or ``at``; see ``IrregularSteps.settled``."""
        now = self._clock() if at is None else at
        self._inbox.post(lambda: self._steps.settled(by, now, activities))

    def warm(self, now: int, steps: int) -> None:
        """The K-th clean step in a row was marked; ``steps`` came before the first of them."""
        self._inbox.post(lambda: self._steps.warm(now, steps))
