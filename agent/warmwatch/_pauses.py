"""What keeps a training from its steps and is no compilation: saving.

A save counts where the training waits for it: on the thread that marks the steps, and until that
is known on the first that saves. One in the background holds nobody up. What a save calls of its
kin is part of it.
"""

from __future__ import annotations

from warmwatch.record import COMPILE_INDEX as AT


class Pauses:
    """Their words among those of the rare block. One fact at a time, in the ledger's turn."""

    def __init__(self, words: list[int]) -> None:
        self._words = words
        self._saver: int | None = None
        self._depth = self._steps = 0
        self._latest = 0, 0  # behind how many steps it last saved, and for how long

    def save_began(self, thread: int, now: int, training: int | None, steps: int) -> bool:
        """``thread`` began to save; whether a word changed. ``training``: that of the steps.

        Where there were more ``steps`` since, the end of the one before was lost: a signal
        handler may have raised where it would have been told.
        """
        if self._saver == thread and self._steps != steps:
            self._saver = None
        if self._saver == thread:
            self._depth += 1
            return False
        if self._saver is not None or training not in (None, thread):
            return False
        self._saver, self._depth, self._steps = thread, 1, steps
        self._words[AT["saving_since_ns"]] = now
        return True

    def save_ended(self, thread: int, now: int) -> bool:
        """``thread`` ended what it began last; whether a word changed."""
        if self._saver != thread:
            return False
        self._depth -= 1
        if self._depth:
            return False
        words, self._saver = self._words, None
        took = max(0, now - words[AT["saving_since_ns"]])
        words[AT["saving_ns"]] += took
        self._latest = self._steps, took + self.saved_behind(self._steps)
        words[AT["saving_since_ns"]] = 0
        words[AT["saved_ns"]] = now
        return True

    def saved_behind(self, steps: int) -> int:
        """Nanoseconds of saving after so many steps, before the next one."""
        behind, took = self._latest
        return took if behind == steps else 0
