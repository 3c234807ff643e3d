"""The counter store: the compile block's counters, when step 1 began, and what is read from
PyTorch with each fact: its counters, graph breaks, memory, settings.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX as AT
from warmwatch.shared.values import PLAIN

if TYPE_CHECKING:
    from warmwatch.hooks.installation import Hooks


class Store(Protocol):
    """Where the ledger stores its counters: this process's own record."""

    def publish(self, block: array[int], *, renew_lock: bool = True) -> None:
        """Store the changed counters; ``renew_lock``: take the lock of the record again."""

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal."""

    def steps(self) -> int:
        """Steps marked so far."""

    def batches(self) -> int:
        """Batches that DataLoaders returned so far."""

    def waited_ns(self) -> int:
        """Time spent waiting for them so far."""


class CounterStore:
    """The counters of the compile block and their store; one for each ledger.

    Attributes:
        on_begin: called when activity has begun, on any thread.
    """

    def __init__(self, store: Store) -> None:
        self.block = array("Q", bytes(8 * record.COMPILE_WORDS))  # a list takes 4 us to pack
        self.store = store
        self.on_begin: Callable[[], None] = lambda: None

    def counted(self, _fact: str, _now: int, values: Mapping[str, Any]) -> None:
        """Increment one counter, also one of a cache."""
        self.block[counter(values["counter"])] += 1
        self.store.publish(self.block)

    def publish_with_line(self, event: str, now: int, values: Mapping[str, Any]) -> None:
        """Publish the counters, and write a line."""
        self.store.publish(self.block)
        self.store.note(event, now, values)

    def count(self, word: str, event: str, now: int, values: Mapping[str, Any]) -> None:
        """Increment one counter, and write a line."""
        self.block[AT[word]] += 1
        self.publish_with_line(event, now, values)


@cache
def counter(name: str) -> int:
    """The index of a counter, also of a cache's (``cache_hits.inductor_fx``) and of ``PLAIN``."""
    field, _, cache = name.partition(".")
    if field in PLAIN:
        return AT["plain"] + list(PLAIN).index(field)
    return AT[field] + (record.CACHES.index(cache) if cache else 0)


_PHASES = slice(AT["phase_ns"], AT["phase_ns"] + len(record.PHASES))
_BACKWARDS = AT["compilations"] + record.KINDS.index("backward")


class FirstStep:
    """When step 1 began: with the first activity after the last evaluation and the first optimizer.

    Nothing marks the begin of step 1, and what comes before these two may compile as well. Without
    an activity after the evaluation, step 1 began with the end of that.

    Attributes:
        began_ns: as known so far; 0 if there was no activity and no evaluation.
    """

    def __init__(self, block: array[int]) -> None:
        self._block, self._awaits_activity = block, True
        self.began_ns = 0

    def activity_began(self, now: int) -> None:
        if self._awaits_activity:
            self._begins(now)
            self._awaits_activity = False

    def evaluated(self, now: int) -> None:
        self._begins(now)
        self._awaits_activity = True

    def optimizer_made(self) -> None:
        """The first optimizer was made. That may be within step 1, after a backward."""
        self._awaits_activity |= not self._block[_BACKWARDS]

    def _begins(self, now: int) -> None:
        if not self._block[AT["first_step_ns"]]:  # else step 1 is over
            self.began_ns = now
            self._block[AT["before_first_step_ns"]] = sum(self._block[_PHASES])


def paused_ns(block: array[int], now: int) -> int:
    """Time of saves and evaluations so far, those in progress included."""
    begun = [since for name in ("saving", "evaluating") if (since := block[AT[f"{name}_since_ns"]])]
    return block[AT["saving_ns"]] + block[AT["evaluating_ns"]] + sum(max(0, now - t) for t in begun)


_MOST_BREAKS = 100  # reasons that are reported: some contain a place each
_MOST_BREAK_LINES = 1_000  # a function that is compiled again breaks again
_SKIPS = "cudagraph_skips"
_UNCOMPILED = ("eager_calls", "refused_calls", "on_recompile_calls")


class PytorchState:
    """What was last read from PyTorch, and the changes since.

    Args:
        redact_break: redacts the reason of a graph break.

    Attributes:
        on_purpose: whether the stance that turns compilation off is the agent's own.
    """

    def __init__(
        self, counters: CounterStore, pytorch: Hooks, redact_break: Callable[[str], str]
    ) -> None:
        self._block, self._store, self._pytorch = counters.block, counters.store, pytorch
        self._redact_break = redact_break
        self.on_purpose: Callable[[], bool] = lambda: False
        self._before: Mapping[str, int] = {}
        self._breaks: Mapping[str, int] = {}
        self._uncompiled: tuple[int, ...] = (0,) * len(_UNCOMPILED)
        self._was_on_purpose = False
        self._reported_breaks: dict[str, int] = {}
        self._break_lines = 0

    def at_begin(self) -> None:
        """Compile activity begins: PyTorch's counters may rise from now on."""
        self._before = self.count_skips()
        self._breaks = self._pytorch.graph_breaks()

    def at_end(self, now: int) -> None:
        """Compile activity ended: add the increase of PyTorch's counters."""
        block = self._block
        after = self._pytorch.counters()
        for name, value in after.items():
            block[counter(name)] += max(0, value - self._before.get(name, 0))
        self._before = after
        self.read_memory(now)
        self.read_disabled()
        self.read_optimizers()
        block[AT["asynchronous"]] |= self._pytorch.asynchronous()
        self._report_breaks(now)

    def _report_breaks(self, now: int) -> None:
        """Write a line for each graph break reason that occurred again, with its count."""
        rises: dict[str, int] = {}
        texts: dict[str, str] = {}
        for text, count in self._pytorch.graph_breaks().items():
            if (rise := count - self._breaks.get(text, 0)) > 0:
                reason = self._redact_break(text)
                rises[reason] = rises.get(reason, 0) + rise
                texts[reason] = text
        for reason, rise in rises.items():
            is_known = reason in self._reported_breaks or len(self._reported_breaks) < _MOST_BREAKS
            if is_known and self._break_lines < _MOST_BREAK_LINES:
                self._break_lines += 1
                count = self._reported_breaks[reason] = self._reported_breaks.get(reason, 0) + rise
                where = self._pytorch.break_place(texts[reason])
                self._store.note("graph_break", now, {"reason": reason, "count": count, **where})

    def read_disabled(self) -> bool:
        """Read whether compilation is disabled; returns whether that changed."""
        block = self._block
        before, by = block[AT["disabled"]], self._pytorch.disabled()
        on_purpose = by == "stance" and self.on_purpose()
        if on_purpose:
            by = ""
        block[AT["disabled"]] = record.DISABLED.index(by)
        if block[AT["disabled"]] != before:
            block[AT["disabled_since_steps"]] = self._store.steps()
        rose = self._count_uncompiled(counts=not (on_purpose or self._was_on_purpose))
        self._was_on_purpose = on_purpose
        return rose or block[AT["disabled"]] != before

    def _count_uncompiled(self, *, counts: bool) -> bool:
        """Whether a stance affected further calls; calls of a baseline do not count."""
        block, now = self._block, self._pytorch.uncompiled()
        rises = [max(0, new - old) for new, old in zip(now, self._uncompiled, strict=True)]
        self._uncompiled = now
        if not counts or not any(rises):
            return False
        steps = self._store.steps()
        for name, rise in zip(_UNCOMPILED, rises, strict=True):
            if rise:
                block[AT[f"{name}_since"]] = block[AT[f"{name}_since"]] or steps + 1
                block[AT[name]] += rise
                block[AT["uncompiled_step"]] = steps + 1
        return True

    def read_optimizers(self) -> None:
        """Record whether the process made an optimizer: then its steps show when it is warm."""
        if not self._block[AT["optimizers"]]:
            self._block[AT["optimizers"]] = int(self._pytorch.optimizers())

    def read_precompiled(self, kinds: Iterable[str] | None = None) -> bool:
        """Record which ahead-of-time compiled code runs; returns whether any is new.

        ``kinds``: of ``record.PRECOMPILED``; ``None``: check the calling thread.
        """
        before = self._block[AT["precompiled"]]
        for kind in self._pytorch.precompiled() if kinds is None else kinds:
            self._block[AT["precompiled"]] |= 1 << record.PRECOMPILED.index(kind)
        return self._block[AT["precompiled"]] != before

    def read_memory(self, now: int) -> tuple[int, ...]:
        """Record the allocator's present figures; returns its bytes, by ``record.MEMORY``."""
        numbers = self._pytorch.memory()
        if not numbers:
            return ()
        *sizes, retries = numbers
        self._block[AT["memory"] : AT["memory"] + len(sizes)] = array("Q", sizes)
        self._block[AT["allocator_retries"]] = 1 + retries
        self._block[AT["memory_ns"]] = now
        return tuple(sizes)

    def count_skips(self) -> Mapping[str, int]:
        """Count CUDA graphs skipped at a graph's first run, outside any activity.

        Returns PyTorch's present counters.
        """
        counters = self._pytorch.counters()
        skips = counters.get(_SKIPS, 0)
        self._block[AT[_SKIPS]] += max(0, skips - self._before.get(_SKIPS, skips))
        self._before = {**self._before, _SKIPS: skips}
        return counters
