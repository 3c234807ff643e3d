"""Saving and evaluating, which is no part of the step that it is in."""

from __future__ import annotations

from warmwatch._applied.book import Book
from warmwatch._pauses import Pauses
from warmwatch.record import COMPILE_INDEX as AT


class Pausing:
    """Pauses as they begin and end.

    Attributes:
        pauses: those since the last step. training: the thread that marks the steps.
    """

    def __init__(self, book: Book) -> None:
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
