"""The ledger: facts from hooks and the user's program, folded into the compile block's
counters.

What only the calling thread and this moment have (clock, thread, step count) is read on the call.
The rest runs in a queue, one fact at a time, so the counters have one writer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import Any

from warmwatch.hooks.points import Compiling
from warmwatch.ledger.activities import Activities
from warmwatch.ledger.compilations import Compilations
from warmwatch.ledger.compile_calls import Asked, Functions
from warmwatch.ledger.counters import Answers, CounterStore, Pytorch, Store, counter
from warmwatch.ledger.pauses import Pausing
from warmwatch.ledger.step_facts import StepFacts
from warmwatch.process.ending import End
from warmwatch.process.threads import SerialQueue
from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX as AT

_LARGEST_WORD = 2**64 - 1


class Run:
    """What the user said of its steps, and its end."""

    def __init__(self, book: CounterStore, answers: Answers) -> None:
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
        ended.update(end.place or {}, steps=self._store.steps())
        self._store.note("exit", now, ended, essential=True)


class Ledger:
    """Compile facts of one process.

    Args:
        word_break: how a reason of a graph break is told. clock: monotonic nanoseconds.
        quiet_ns: how long nothing may compile before a process without steps is warm; 0: for ever.

    Attributes:
        words: those of the rare block. marks: the facts that step marks tell.
    """

    def __init__(
        self,
        store: Store,
        pytorch: Pytorch,
        word_break: Callable[[str], str],
        *,
        quiet_ns: int = 0,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._store, self._clock, self._queue = store, clock, SerialQueue()
        self._book = book = CounterStore(store)
        self.words = book.words
        self.words[AT["quiet_ns"]] = quiet_ns
        self._answers = answers = Answers(book, pytorch, word_break)
        functions = Functions()
        self._activities = Activities(book, answers, functions)
        self._compilations = Compilations(book, answers, functions, self._activities)
        self._pausing = Pausing(book)
        self._asked, self._run = Asked(book, answers), Run(book, answers)
        self.marks = StepFacts(book, answers, self._pausing, self._queue, clock)
        self._compiling = Compiling()
        self._kernels: dict[int, int] = {}  # that a thread waited for, of its present compilation

    def on_begin(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` whenever activity has begun, on whichever thread."""
        self._book.on_begin = callback

    def on_purpose(self, holds: Callable[[], bool]) -> None:
        """Where ``holds()``, the stance that turns compilation off is the agent's own."""
        self._answers.on_purpose = holds

    def begin(self, event: str, of: Mapping[str, Any] | None = None) -> None:
        """The calling thread began ``event``; ``of``: what is compiled, as its line has it."""
        thread, now = threading.get_ident(), self._clock()
        if of and "id" in of:
            self._compiling.begun(thread, of)
        self._queue.post(self._activities.begin, thread, event, now, of or {})

    def end(self, event: str) -> None:
        """The calling thread ended ``event``."""
        thread, now = threading.get_ident(), self._clock()
        self._queue.post(self._activities.end, thread, event, now)

    def abandon(self) -> None:
        """The calling thread marks a step, so nothing that it began can still be in progress.

        The same holds for threads that no longer exist. An end that was never reported (a compiler
        that failed in an unusual way, an exception out of a signal handler while we recorded it)
        would otherwise keep the rank compiling for ever. What other threads compile at this moment
        has not held up the step, which is complete: they compile in the background.
        """
        if not self.words[AT["active_since_ns"]] and not self.words[AT["background_since_ns"]]:
            return
        now = self._clock()
        over = [threading.get_ident(), *self._activities.gone(sys._current_frames())]
        self._queue.post(self._activities.abandoned, over, now)

    def progress(self, of: str, done: int, total: int) -> None:
        """So many of what the activity in progress counts are done, which then is over."""
        if of == "kernels" and not done:
            thread = threading.get_ident()
            self._kernels[thread] = self._kernels.get(thread, 0) + total
        self._queue.post(self._activities.progress, of, done, total)

    def recompile(self, reason: str, category: str, where: Mapping[str, Any]) -> None:
        """The calling thread begins a recompile, for this reason.

        It is told at once: while it is compiled, nobody should blame an older reason.
        """
        now = self._clock()
        why = {"reason": reason, "category": category}
        thread = threading.get_ident()
        if self._compiling.recompile(thread, why):
            values = {**why, **where, **self._compiling.circumstances(thread)}
            self._queue.post(self._store.note, "recompile", now, values)

    def compilation(self, kind: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A compilation of the calling thread ended; ``values`` as its journal line has them.

        Returns them with what is known since it began.
        """
        now = self._clock()
        thread = threading.get_ident()
        if kind == "forward":
            values = self._compiling.ended(thread, values)
        if self.words[AT["evaluating_since_ns"]]:
            values = {**values, "evaluating": True}
        if kernels := self._kernels.pop(thread, 0):
            values = {**values, "kernels": kernels}
        self._queue.post(self._compilations.compilation, kind, values, now)
        return values

    def cached(self, cache: str, *, hit: bool) -> None:
        """A cache that PyTorch's counters leave out was asked, within an activity."""
        word = counter(f"cache_{'hits' if hit else 'misses'}.{cache}")
        self._queue.post(self._compilations.cached, word)

    def cache_lookup(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        """A compile cache was asked."""
        now = self._clock()
        self._queue.post(self._compilations.cache_lookup, now, cache, verdict, values)

    def fallback(self, values: Mapping[str, Any]) -> None:
        """A frame hit the recompile limit."""
        now = self._clock()
        self._queue.post(self._compilations.fallback, now, values)

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None:
        """CUDA graphs were left out, which PyTorch has counted by now."""
        now = self._clock()
        self._queue.post(
            lambda: self._compilations.cudagraph_skipped(now, {"reason": reason, **where})
        )

    def pause_began(self, what: str) -> None:
        """The calling thread began to save or to evaluate: one of ``_pauses.WORDS``."""
        thread, now, steps = threading.get_ident(), self._clock(), self._store.steps()
        self._queue.post(self._pausing.began, what, thread, now, steps)

    def pause_ended(self, what: str) -> None:
        """The calling thread ended what it began last of it."""
        thread, now, steps = threading.get_ident(), self._clock(), self._store.steps()
        self._queue.post(self._pausing.ended, what, thread, now, steps)

    def wrapped(self, way: Mapping[str, Any]) -> None:
        """The user's program handed something to ``torch.compile``, in this way."""
        now = self._clock()
        self._queue.post(self._asked.wrapped, way, now)

    def optimizer_made(self) -> None:
        """The process made an optimizer: from now on only steps show that it is warm."""
        self._queue.post(self._asked.optimizer_made)

    def precompiled(self, kind: str) -> None:
        """Code that was compiled ahead of time runs; ``kind``: one of ``record.PRECOMPILED``."""
        self._queue.post(self._asked.precompiled, {kind})

    def turned(self) -> None:
        """Compilation was perhaps turned off, or on again."""
        self._queue.post(self._asked.turned)

    def error(self, where: str, message: str) -> None:
        """Something of the agent's own failed."""
        now = self._clock()
        values = {"where": where, "message": message[:500]}
        self._queue.post(self._book.count, "agent_errors", "error", now, values)

    def worth(self, values: Mapping[str, int]) -> None:
        """The user said what a step is worth, in ``tokens`` or ``samples`` or both."""
        self._queue.post(self._run.worth, values)

    def opened(self, graphs: int) -> None:
        """The record is there; so many graphs had been captured before it began."""
        now = self._clock()
        self._queue.post(self._asked.opened, graphs, now)

    def exit(self, end: End) -> None:
        """The process ends, or the agent is detached. The first end that is said holds."""
        now = self._clock()
        self._queue.post(self._run.exit, end, now)

    def compiling(self) -> tuple[int, ...]:
        """The threads that have begun something and not ended it, as of now."""
        return self._activities.threads()

    def compile_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""
        return self._activities.total_ns()
