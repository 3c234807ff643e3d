"""The counter store: the compile block's counters, and what is read from PyTorch with each
fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX as AT


class Store(Protocol):
    """Where what the ledger knows is kept: this process's own record."""

    def publish(self, words: list[int], *, renew_lock: bool = True) -> None:
        """Store the words, which changed; ``renew_lock``: take the lock of the record again."""

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal."""

    def steps(self) -> int:
        """Steps marked so far."""


class CounterStore:
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


_MOST_BREAKS = 100  # reasons that are told: some name a place each
_MOST_BREAK_LINES = 1_000  # a function that is compiled again breaks again
_SKIPS = "cudagraph_skips"


class Pytorch(Protocol):
    """What may be asked of PyTorch, through the hooks that are in place."""

    def counters(self) -> Mapping[str, int]:
        """Its cumulative counters, by the names of the words they add to."""

    def graph_breaks(self) -> Mapping[str, int]:
        """How often each of its reasons broke a graph."""

    def break_place(self, reason: str) -> Mapping[str, Any]:
        """Where this reason last broke a graph: name, file and line, as far as it says."""

    def asynchronous(self) -> bool:
        """Whether a mode is on that swaps compiled code in later, with no event."""

    def disabled(self) -> str:
        """By which of ``record.DISABLED`` compilation is turned off now."""

    def optimizers(self) -> bool:
        """Whether the process made an optimizer of ``torch.optim``."""

    def precompiled(self) -> Iterable[str]:
        """Of ``record.PRECOMPILED``, what runs, as far as the calling thread sees it."""

    def uncompiled(self) -> tuple[int, int]:
        """Calls of compiled functions that a stance ran eagerly, and that it refused."""

    def memory(self) -> tuple[int, ...]:
        """Bytes of CUDA's allocator, by ``record.MEMORY``, and its retries; empty: not known."""


class Answers:
    """What PyTorch said, and what is new of it.

    Args:
        word_break: how a reason of a graph break is told.

    Attributes:
        on_purpose: whether the stance that turns compilation off is the agent's own.
    """

    def __init__(
        self, book: CounterStore, pytorch: Pytorch, word_break: Callable[[str], str]
    ) -> None:
        self._words, self._store, self._pytorch = book.words, book.store, pytorch
        self._word_break = word_break
        self.on_purpose: Callable[[], bool] = lambda: False
        self._before: Mapping[str, int] = {}
        self._breaks: Mapping[str, int] = {}
        self._uncompiled: tuple[int, int] = (0, 0)
        self._was_on_purpose = False
        self._told_breaks: dict[str, int] = {}
        self._break_lines = 0

    def at_begin(self) -> None:
        """Compile activity begins: from here on PyTorch's counters rise by it."""
        self.look_whether_disabled()
        self.look_for_optimizers()
        self.count_skips()
        self._before = self._pytorch.counters()
        self._breaks = self._pytorch.graph_breaks()

    def at_end(self, now: int) -> None:
        """It has ended: what rose is added up."""
        words = self._words
        after = self._pytorch.counters()
        for name, value in after.items():
            words[counter(name)] += max(0, value - self._before.get(name, 0))
        self._before = after
        self.look_at_memory(now)
        self.look_for_optimizers()
        words[AT["asynchronous"]] |= self._pytorch.asynchronous()
        self._tell_breaks(now)

    def _tell_breaks(self, now: int) -> None:
        """A line for each reason of a graph break that has come again, with its count so far."""
        rises: dict[str, int] = {}
        words: dict[str, str] = {}
        for text, count in self._pytorch.graph_breaks().items():
            if (rise := count - self._breaks.get(text, 0)) > 0:
                reason = self._word_break(text)
                rises[reason] = rises.get(reason, 0) + rise
                words[reason] = text
        for reason, rise in rises.items():
            known = reason in self._told_breaks or len(self._told_breaks) < _MOST_BREAKS
            if known and self._break_lines < _MOST_BREAK_LINES:
                self._break_lines += 1
                count = self._told_breaks[reason] = self._told_breaks.get(reason, 0) + rise
                where = self._pytorch.break_place(words[reason])
                self._store.note("graph_break", now, {"reason": reason, "count": count, **where})

    def look_whether_disabled(self) -> bool:
        """Whether that has changed."""
        words = self._words
        before, by = words[AT["disabled"]], self._pytorch.disabled()
        on_purpose = by == "stance" and self.on_purpose()
        if on_purpose:
            by = ""
        words[AT["disabled"]] = record.DISABLED.index(by)
        if words[AT["disabled"]] != before:
            words[AT["disabled_since_steps"]] = self._store.steps()
        rose = self._count_uncompiled(counts=not (on_purpose or self._was_on_purpose))
        self._was_on_purpose = on_purpose
        return rose or words[AT["disabled"]] != before

    def _count_uncompiled(self, *, counts: bool) -> bool:
        """Whether a stance ran or refused further calls, of which those of a baseline count not."""
        words, now = self._words, self._pytorch.uncompiled()
        rises = [max(0, new - old) for new, old in zip(now, self._uncompiled, strict=True)]
        self._uncompiled = now
        if not counts or not any(rises):
            return False
        steps = self._store.steps()
        for name, rise in zip(("eager_calls", "refused_calls"), rises, strict=True):
            if rise:
                words[AT[f"{name}_since"]] = words[AT[f"{name}_since"]] or steps + 1
                words[AT[name]] += rise
                words[AT["uncompiled_step"]] = steps + 1
        return True

    def look_for_optimizers(self) -> None:
        """Record whether the process made an optimizer: then its steps show when it is warm."""
        if not self._words[AT["optimizers"]]:
            self._words[AT["optimizers"]] = int(self._pytorch.optimizers())

    def runs_ahead(self, kinds: Iterable[str] | None = None) -> bool:
        """Record which code that was compiled ahead of time runs; whether any is new.

        ``kinds``: of ``record.PRECOMPILED``; ``None``: ask what runs on this thread.
        """
        before = self._words[AT["precompiled"]]
        for kind in self._pytorch.precompiled() if kinds is None else kinds:
            self._words[AT["precompiled"]] |= 1 << record.PRECOMPILED.index(kind)
        return self._words[AT["precompiled"]] != before

    def look_at_memory(self, now: int) -> tuple[int, ...]:
        """Record what the allocator reports now; its bytes, by ``record.MEMORY``."""
        found = self._pytorch.memory()
        if not found:
            return ()
        *sizes, retries = found
        self._words[AT["memory"] : AT["memory"] + len(sizes)] = sizes
        self._words[AT["allocator_retries"]] = 1 + retries
        self._words[AT["memory_ns"]] = now
        return tuple(sizes)

    def count_skips(self) -> None:
        """CUDA graphs that were left out as a graph first ran, with no activity around it."""
        skips = self._pytorch.counters().get(_SKIPS, 0)
        self._words[AT[_SKIPS]] += max(0, skips - self._before.get(_SKIPS, skips))
        self._before = {**self._before, _SKIPS: skips}
