"""What the run itself is: what its steps are worth, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from warmwatch import record
from warmwatch._applied.answers import Answers
from warmwatch._applied.book import Book
from warmwatch._ending import End
from warmwatch.record import COMPILE_INDEX as AT

_LARGEST_WORD = 2**64 - 1


class Run:
    """What the user said of its steps, and its end."""

    def __init__(self, book: Book, answers: Answers) -> None:
        self._words, self._store, self._answers = book.words, book.store, answers

    def worth(self, values: Mapping[str, int]) -> None:
        words, steps = self._words, self._store.steps()
        for unit in ("tokens", "samples"):
            worth, before = AT[f"{unit}_per_step"], AT[f"{unit}_before"]
            if words[worth]:
                earned = words[before] + (steps - words[AT["worth_since"]]) * words[worth]
            else:  # said late, it holds for the steps before
                earned = steps * values.get(unit, 0)
            words[before] = min(earned, _LARGEST_WORD)
            words[worth] = values.get(unit, words[worth])
        words[AT["worth_since"]] = steps
        self._store.publish(words)

    def exit(self, end: End, now: int) -> None:
        if self._words[AT["end_code"]]:
            return  # a spawned child comes here as multiprocessing ends it, and again at exit
        self._answers.look_at_memory(now)
        self._words[AT["end_code"]] = record.ENDS.index(end.how)
        self._words[AT["exit_code"]] = 0 if end.code is None else 1 + end.code
        self._words[AT["ended_ns"]] = now
        self._store.publish(self._words)
        ended = {"how": end.how, "exception": end.exception, "code": end.code}
        self._store.note("exit", now, {**ended, "steps": self._store.steps()}, essential=True)
