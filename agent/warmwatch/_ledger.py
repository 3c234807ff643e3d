"""The rare facts, folded into the cumulative words of the slot's rare block.

Facts arrive on any thread. Each is put into an inbox, and whichever thread finds the ledger free
empties it: no thread waits for another, and a fact that comes while one is being applied (from a
signal handler, a garbage collection) is applied right after. The words have one writer at a time.

Here a fact is told: what only its own thread and moment know is read, and it is handed in. How each
is applied, in its turn, is in ``_applied``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import Any

from warmwatch._applied.activities import Activities
from warmwatch._applied.answers import Answers, Pytorch
from warmwatch._applied.asked import Asked
from warmwatch._applied.book import Book, Store, counter
from warmwatch._applied.compilations import Compilations
from warmwatch._applied.pauses import Pausing
from warmwatch._applied.run import Run
from warmwatch._asked import Compiling, Functions
from warmwatch._ending import End
from warmwatch._inbox import Inbox
from warmwatch._step_facts import StepFacts
from warmwatch.record import COMPILE_INDEX as AT


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
        self._store, self._clock, self._inbox = store, clock, Inbox()
        self._book = book = Book(store)
        self.words = book.words
        self.words[AT["quiet_ns"]] = quiet_ns
        self._answers = answers = Answers(book, pytorch, word_break)
        functions = Functions()
        self._activities = Activities(book, answers, functions)
        self._activity = self._activities.activity
        self._compilations = Compilations(book, answers, functions, self._activity)
        self._pausing = Pausing(book)
        self._asked, self._run = Asked(book, answers), Run(book, answers)
        self.marks = StepFacts(book, answers, self._pausing, self._inbox, clock)
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
        self._inbox.post(lambda: self._activities.begin(thread, event, now, of or {}))

    def end(self, event: str) -> None:
        """The calling thread ended ``event``."""
        thread, now = threading.get_ident(), self._clock()
        self._inbox.post(lambda: self._activities.end(thread, event, now))

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
        over = [threading.get_ident(), *self._activity.gone(sys._current_frames())]
        self._inbox.post(lambda: self._activities.abandoned(over, now))

    def progress(self, of: str, done: int, total: int) -> None:
        """So many of what the activity in progress counts are done, which then is over."""
        if of == "kernels" and not done:
            thread = threading.get_ident()
            self._kernels[thread] = self._kernels.get(thread, 0) + total
        self._inbox.post(lambda: self._activities.progress(of, done, total))

    def recompile(self, reason: str, category: str, where: Mapping[str, Any]) -> None:
        """The calling thread begins a recompile, for this reason.

        It is told at once: while it is compiled, nobody should blame an older reason.
        """
        now = self._clock()
        why = {"reason": reason, "category": category}
        if self._compiling.recompile(threading.get_ident(), why):
            self._inbox.post(lambda: self._store.note("recompile", now, {**why, **where}))

    def compilation(self, kind: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A compilation of the calling thread ended; ``values`` as its journal line has them.

        Returns them with what is known since it began.
        """
        now = self._clock()
        thread = threading.get_ident()
        if kind == "forward":
            values = self._compiling.ended(thread, values)
        if kernels := self._kernels.pop(thread, 0):
            values = {**values, "kernels": kernels}
        self._inbox.post(lambda: self._compilations.compilation(kind, values, now))
        return values

    def cached(self, cache: str, *, hit: bool) -> None:
        """A cache that PyTorch's counters leave out was asked, within an activity."""
        word = counter(f"cache_{'hits' if hit else 'misses'}.{cache}")
        self._inbox.post(lambda: self._compilations.cached(word))

    def cache_asked(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        """A compile cache was asked."""
        now = self._clock()
        self._inbox.post(lambda: self._compilations.cache_asked(now, cache, verdict, values))

    def fallback(self, values: Mapping[str, Any]) -> None:
        """A frame hit the recompile limit."""
        now = self._clock()
        self._inbox.post(lambda: self._compilations.fallback(now, values))

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None:
        """CUDA graphs were left out, which PyTorch has counted by now."""
        now = self._clock()
        self._inbox.post(
            lambda: self._compilations.cudagraph_skipped(now, {"reason": reason, **where})
        )

    def pause_began(self, what: str) -> None:
        """The calling thread began to save or to evaluate: one of ``_pauses.WORDS``."""
        thread, now, steps = threading.get_ident(), self._clock(), self._store.steps()
        self._inbox.post(lambda: self._pausing.began(what, thread, now, steps))

    def pause_ended(self, what: str) -> None:
        """The calling thread ended what it began last of it."""
        thread, now, steps = threading.get_ident(), self._clock(), self._store.steps()
        self._inbox.post(lambda: self._pausing.ended(what, thread, now, steps))

    def wrapped(self, way: Mapping[str, Any]) -> None:
        """The user's program handed something to ``torch.compile``, in this way."""
        now = self._clock()
        self._inbox.post(lambda: self._asked.wrapped(way, now))

    def optimizer_made(self) -> None:
        """The process made an optimizer: from now on only steps show that it is warm."""
        self._inbox.post(self._asked.optimizer_made)

    def precompiled(self, kind: str) -> None:
        """Code that was compiled ahead of time runs; ``kind``: one of ``record.PRECOMPILED``."""
        self._inbox.post(lambda: self._asked.precompiled({kind}))

    def turned(self) -> None:
        """Compilation was perhaps turned off, or on again."""
        self._inbox.post(self._asked.turned)

    def error(self, where: str, message: str) -> None:
        """Something of the agent's own failed."""
        now = self._clock()
        values = {"where": where, "message": message[:500]}
        self._inbox.post(lambda: self._book.count("agent_errors", "error", now, values))

    def worth(self, values: Mapping[str, int]) -> None:
        """The user said what a step is worth, in ``tokens`` or ``samples`` or both."""
        self._inbox.post(lambda: self._run.worth(values))

    def opened(self, graphs: int) -> None:
        """The record is there; so many graphs had been captured before it began."""
        now = self._clock()
        self._inbox.post(lambda: self._asked.opened(graphs, now))

    def exit(self, end: End) -> None:
        """The process ends, or the agent is detached. The first end that is said holds."""
        now = self._clock()
        self._inbox.post(lambda: self._run.exit(end, now))

    def compiling(self) -> tuple[int, ...]:
        """The threads that have begun something and not ended it, as of now."""
        return self._activity.threads()

    def compile_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""
        return self._activity.total_ns()
