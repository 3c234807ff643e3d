"""What all facts are entered in: the words, and the record that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from warmwatch import record
from warmwatch.record import COMPILE_INDEX as AT


class Store(Protocol):
    """Where what the ledger knows is kept: this process's own record."""

    def publish(self, words: list[int]) -> None:
        """Store the words; called whenever they changed."""

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal."""

    def steps(self) -> int:
        """Steps marked so far."""


class Book:
    """The words of the rare block and their store, one for each ledger.

    Attributes:
        on_begin: called whenever activity has begun, on whichever thread.
    """

    def __init__(self, store: Store) -> None:
        self.words = [0] * record.COMPILE_WORDS
        self.store = store
        self.on_begin: Callable[[], None] = lambda: None

    def noted(self, event: str, now: int, values: Mapping[str, Any]) -> None:
        """Publish the words, and write a line."""
        self.store.publish(self.words)
        self.store.note(event, now, values)

    def count(self, word: str, event: str, now: int, values: Mapping[str, Any]) -> None:
        """One more of them, and a line."""
        self.words[AT[word]] += 1
        self.noted(event, now, values)


def counter(name: str) -> int:
    """Where the word of this name is, which may be that of a cache: ``cache_hits.inductor_fx``."""
    field, _, cache = name.partition(".")
    return AT[field] + (record.CACHES.index(cache) if cache else 0)
