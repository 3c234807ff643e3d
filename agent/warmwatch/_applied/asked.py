"""What was asked of ``torch.compile``, and whether it is turned off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from warmwatch._applied.answers import Answers
from warmwatch._applied.book import Book
from warmwatch._asked import Ways
from warmwatch.record import COMPILE_INDEX as AT


class Asked:
    """How ``torch.compile`` was called: told from when there is a record to tell it in."""

    def __init__(self, book: Book, answers: Answers) -> None:
        self._words, self._store, self._answers = book.words, book.store, answers
        self._ways = Ways()
        self._is_open = False

    def wrapped(self, way: Mapping[str, Any], now: int) -> None:
        self._words[AT["wrappers"]] += 1
        self._ways.heard(way)
        self._tell_ways(now)
        self._answers.look_whether_disabled()
        self._store.publish(self._words)

    def opened(self, graphs: int, now: int) -> None:
        self._words[AT["graphs_before"]] = graphs
        self._answers.look_for_optimizers()
        self._is_open = True
        self._tell_ways(now)
        self._store.publish(self._words)

    def _tell_ways(self, now: int) -> None:
        """A line for each way in which ``torch.compile`` was called that no line has told yet."""
        for way in self._ways.untold() if self._is_open else ():
            self._store.note("wrapped", now, way)

    def optimizer_made(self) -> None:
        if not self._words[AT["optimizers"]]:
            self._words[AT["optimizers"]] = 1
            self._store.publish(self._words)

    def precompiled(self, kinds: Iterable[str]) -> None:
        if self._answers.runs_ahead(kinds):
            self._store.publish(self._words)

    def turned(self) -> None:
        if self._answers.look_whether_disabled():
            self._store.publish(self._words)
