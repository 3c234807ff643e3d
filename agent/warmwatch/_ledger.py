"""The rare facts, folded into the cumulative words of the slot's rare block.

Facts arrive on any thread. Each is put into an inbox, and whichever thread finds the ledger free
empties it: no thread waits for another, and a fact that comes while one is being applied (from a
signal handler, a garbage collection) is applied right after. The words have one writer at a time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from warmwatch import record
from warmwatch._activity import Activity
from warmwatch._asked import Functions, Ways
from warmwatch._components import Told
from warmwatch._ending import End
from warmwatch._inbox import Inbox
from warmwatch._long_steps import LeftOut
from warmwatch._pauses import Pauses
from warmwatch._phases import is_preparation
from warmwatch.record import COMPILE_INDEX as AT

if TYPE_CHECKING:
    from warmwatch._batches import Behind

_MOST_BREAKS = 100  # reasons that are told: some name a place each
_LARGEST_WORD = 2**64 - 1
_SKIPS = "cudagraph_skips"
_MOST_SKIPS = 100  # that are told: PyTorch says it once for each graph


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

    def memory(self) -> tuple[int, ...]:
        """Bytes of CUDA's allocator, by ``record.MEMORY``; empty where they are not known."""


class Ledger:
    """Compile facts of one process.

    Args:
        word_break: how a reason of a graph break is told. clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        store: Store,
        pytorch: Pytorch,
        word_break: Callable[[str], str],
        *,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.words = [0] * record.COMPILE_WORDS
        self._activity, self._pauses = Activity(self.words), Pauses(self.words)
        self._told_keys = Told()
        self._left_out = LeftOut()
        self._ways, self._functions = Ways(), Functions()
        self._on_purpose: Callable[[], bool] = lambda: False
        self._is_open = False
        self._training: int | None = None  # the thread that marks the steps
        self._store, self._pytorch, self._clock = store, pytorch, clock
        self._word_break = word_break
        self._before: Mapping[str, int] = {}
        self._breaks: Mapping[str, int] = {}
        self._told_breaks: set[str] = set()
        self._told_skips = 0
        self._on_begin: Callable[[], None] = lambda: None
        self._reasons: dict[int, dict[str, str]] = {}  # of the recompile that a thread began
        self._kernels: dict[int, int] = {}  # that a thread waited for, of its present compilation
        self._inbox = Inbox()

    def on_begin(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` whenever activity has begun, on whichever thread."""
        self._on_begin = callback

    def on_purpose(self, holds: Callable[[], bool]) -> None:
        """Where ``holds()``, the stance that turns compilation off is the agent's own."""
        self._on_purpose = holds

    # What hooks call, on any thread.

    def begin(self, event: str, of: Mapping[str, Any] | None = None) -> None:
        """The calling thread began ``event``; ``of``: what is compiled, as its line has it."""
        thread, now = threading.get_ident(), self._clock()
        self._inbox.post(lambda: self._begin(thread, event, now, of or {}))

    def end(self, event: str) -> None:
        """The calling thread ended ``event``."""
        thread, now = threading.get_ident(), self._clock()
        self._inbox.post(lambda: self._changed(self._activity.end(thread, event, now), now))

    def abandon(self) -> None:
        """The calling thread marks a step, so nothing that it began can still be going on.

        Nor anything of a thread that is gone. An end that was never reported (a compiler that
        failed in an unusual way, an exception out of a signal handler while we took it down) would
        otherwise keep the rank compiling for ever.
        """
        if not self.words[AT["active_since_ns"]]:
            return
        now = self._clock()
        over = [threading.get_ident(), *self._activity.gone(sys._current_frames())]
        self._inbox.post(lambda: self._changed(self._activity.abandon(over, now), now))

    def recompile(self, reason: str, category: str, where: Mapping[str, Any]) -> None:
        """The calling thread begins a recompile, for this reason.

        It is told at once: while it is compiled, nobody should blame an older reason.
        """
        now = self._clock()
        why = {"reason": reason, "category": category}
        self._reasons[threading.get_ident()] = why
        self._inbox.post(lambda: self._store.note("recompile", now, {**why, **where}))

    def compilation(self, kind: str, values: Mapping[str, Any]) -> None:
        """A compilation of the calling thread ended; ``values`` as its journal line has them.

        The reasons that were heard when it began replace the one that PyTorch's record keeps.
        """
        now = self._clock()
        thread = threading.get_ident()
        if "category" in values:
            values = {**values, **self._reasons.pop(thread, {})}
        if kernels := self._kernels.pop(thread, 0):
            values = {**values, "kernels": kernels}
        self._inbox.post(lambda: self._compilation(kind, values, now))

    def cached(self, cache: str, *, hit: bool) -> None:
        """A cache that PyTorch's counters leave out was asked, within an activity."""
        word = _counter(f"cache_{'hits' if hit else 'misses'}.{cache}")
        self._inbox.post(lambda: self._raise(word))

    def cache_asked(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        """A compile cache was asked."""
        now = self._clock()
        self._inbox.post(lambda: self._cache_asked(now, cache, verdict, values))

    def pause_began(self, what: str) -> None:
        """The calling thread began to save or to evaluate: one of ``_pauses.WORDS``."""
        thread, now, steps = threading.get_ident(), self._clock(), self._store.steps()
        self._inbox.post(lambda: self._pause_began(what, thread, now, steps))

    def pause_ended(self, what: str) -> None:
        """The calling thread ended what it began last of it."""
        thread, now, steps = threading.get_ident(), self._clock(), self._store.steps()
        self._inbox.post(lambda: self._pause_ended(what, thread, now, steps))

    def resumed(self, now: int, last: int, duration: int) -> int:
        """The length of a clean step, which is not the first, without the pauses in it.

        ``now``: its mark; ``last``: that of the one before; ``duration``: between the two.
        """
        without = duration - min(duration, self._pauses.since(last))
        if without != duration:
            self._inbox.post(lambda: self._resumed(now, last, without))
        return without

    def fallback(self, values: Mapping[str, Any]) -> None:
        """A frame hit the recompile limit."""
        now = self._clock()
        self._inbox.post(lambda: self._fallback(now, values))

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None:
        """CUDA graphs were left out, which PyTorch has counted by now."""
        now = self._clock()
        self._inbox.post(lambda: self._skipped(now, {"reason": reason, **where}))

    def wrapped(self, way: Mapping[str, Any]) -> None:
        """The user's program handed something to ``torch.compile``, in this way."""
        now = self._clock()
        self._inbox.post(lambda: self._wrapped(way, now))

    def turned(self) -> None:
        """Compilation was perhaps turned off, or on again."""
        self._inbox.post(self._turned)

    def progress(self, of: str, done: int, total: int) -> None:
        """So many of what the activity in progress counts are done, which then is over."""
        if of == "kernels" and not done:
            thread = threading.get_ident()
            self._kernels[thread] = self._kernels.get(thread, 0) + total
        self._inbox.post(lambda: self._progress(of, done, total))

    def error(self, where: str, message: str) -> None:
        """Something of the agent's own failed."""
        now = self._clock()
        values = {"where": where, "message": message[:500]}
        self._inbox.post(lambda: self._count("agent_errors", "error", now, values))

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
        self._training = threading.get_ident()
        self._inbox.post(lambda: self._irregular(now, before, seen))
        if touched:
            self._inbox.post(lambda: self._touched(steps, duration))
        if touched or baseline:
            self._inbox.post(lambda: self._not_clean(steps, rest))
        if steps == 1:
            self._inbox.post(lambda: self._first(now, duration, baseline=baseline))
        seconds = duration / 1e9 if duration else None
        clean = not (touched or baseline)
        values = {"n": steps, "seconds": seconds, "clean": clean}
        if touched or steps == 1:
            self._inbox.post(lambda: self._noted("step", now, values))
        else:
            self._inbox.post(lambda: self._store.publish(self.words))
        return rest

    def baseline(self, steps: int, median_ns: int | None) -> None:
        """The steps that were to run eagerly are over; ``median_ns``: of those that did."""
        now = self._clock()
        values = {"steps": steps, "median_ns": median_ns}
        self._inbox.post(lambda: self._noted("baseline", now, values))

    def long_step(
        self, steps: int, now: int, duration: int, usual: int, behind: Behind | None
    ) -> None:
        """A clean step took far longer than usual ones; ``behind``: the batches within it."""
        values = {"n": steps, "seconds": duration / 1e9, "usual": usual / 1e9}
        if behind is not None:
            values["data"] = behind.wait_ns / 1e9
            values["batches"] = behind.batches
            values["batches_before"] = behind.all_batches - behind.batches
        self._inbox.post(lambda: self._long_step(now, values))

    def warm(self, now: int, steps: int) -> None:
        """The K-th clean step in a row was marked; ``steps`` came before the first of them."""
        self._inbox.post(lambda: self._warm(now, steps))

    def worth(self, values: Mapping[str, int]) -> None:
        """The user said what a step is worth, in ``tokens`` or ``samples`` or both."""
        self._inbox.post(lambda: self._worth(values))

    def opened(self, graphs: int) -> None:
        """The record is there; so many graphs had been captured before it began."""
        now = self._clock()
        self._inbox.post(lambda: self._opened(graphs, now))

    def exit(self, end: End) -> None:
        """The process ends, or the agent is detached. The first end that is said holds."""
        now = self._clock()
        self._inbox.post(lambda: self._exit(end, now))

    def compiling(self) -> tuple[int, ...]:
        """The threads that have begun something and not ended it, as of now."""
        return self._activity.threads()

    def compile_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""
        return self._activity.total_ns()

    # In turn: one fact at a time.

    def _begin(self, thread: int, event: str, now: int, of: Mapping[str, Any]) -> None:
        words = self.words
        self._functions.begun(of)
        if is_preparation(event) and not self._activity.holds(thread):
            return
        if not self._activity:
            words[AT["active_since_ns"]] = now  # before the count: see ``_steps.look_closely``
            words[AT["begun"]] += 1
            self._on_begin()  # after the count: who is called by it finds it
            words[AT["first_begin_ns"]] = words[AT["first_begin_ns"]] or now
            if not words[AT["episode_began_ns"]]:
                words[AT["episode_began_ns"]] = now
                words[AT["episode_began_steps"]] = self._store.steps()
            self._look_whether_disabled()
            self._count_skips()
            self._before = self._pytorch.counters()
            self._breaks = self._pytorch.graph_breaks()
            values = {"activity": words[AT["begun"]], "what": event, "steps": self._store.steps()}
            self._store.note("begin", now, {**values, **of})
        if self._activity.begin(thread, event, now):
            self._store.publish(words)

    def _changed(self, changed: bool, now: int) -> None:
        words = self.words
        if words[AT["active_since_ns"]] and not self._activity:
            words[AT["ended"]] = words[AT["begun"]]
            took = now - words[AT["active_since_ns"]]
            words[AT["longest_activity_ns"]] = max(words[AT["longest_activity_ns"]], took)
            for name in ("active_since_ns", "progress_of", "progress_done", "progress_total"):
                words[AT[name]] = 0
            words[AT["last_end_ns"]] = now
            after = self._pytorch.counters()
            for name, value in after.items():
                words[_counter(name)] += max(0, value - self._before.get(name, 0))
            self._before = after
            self._look_at_memory(now)
            words[AT["asynchronous"]] |= self._pytorch.asynchronous()
            self._tell_breaks(now)
            phases = self._activity.phase_ns()
            self._store.note("end", now, {"activity": words[AT["begun"]], "phase_ns": phases})
        if changed:
            self._store.publish(words)

    def _tell_breaks(self, now: int) -> None:
        """A line for each reason of a graph break that no line has told yet."""
        rises: dict[str, int] = {}
        words: dict[str, str] = {}
        for text, count in self._pytorch.graph_breaks().items():
            if (rise := count - self._breaks.get(text, 0)) > 0:
                reason = self._word_break(text)
                rises[reason] = rises.get(reason, 0) + rise
                words[reason] = text
        for reason, rise in rises.items():
            if reason not in self._told_breaks and len(self._told_breaks) < _MOST_BREAKS:
                self._told_breaks.add(reason)
                where = self._pytorch.break_place(words[reason])
                self._store.note("graph_break", now, {"reason": reason, "count": rise, **where})

    def _compilation(self, kind: str, values: Mapping[str, Any], now: int) -> None:
        words = self.words
        words[AT["compilations"] + record.KINDS.index(kind)] += 1
        words[AT["failures"]] += "failure" in values
        if category := values.get("category"):
            words[AT["recompiles"] + record.CATEGORIES.index(category)] += 1
            words[AT["recompiles_after_warm"]] += words[AT["warmups"]] > 0
        if memory := self._look_at_memory(now):
            values = {**values, "allocated": memory[0], "reserved": memory[1]}
        if code := self._functions.code(values.get("id")):
            values = {**values, "code": code}
        self._store.publish(words)
        self._store.note("compilation", now, {"kind": kind, **values})

    def _raise(self, word: int) -> None:
        self.words[word] += 1  # published with the compilation, or with the activity's end

    def _count(self, word: str, event: str, now: int, values: Mapping[str, Any]) -> None:
        self.words[AT[word]] += 1
        self._noted(event, now, values)

    def _cache_asked(self, now: int, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        known = {name: values.get(name) for name in ("id", "key", "reason")}
        parts = self._told_keys.packed(cache, values.get("lines") or [])
        self._store.note("cache", now, {"cache": cache, "verdict": verdict, **known, **parts})

    def _pause_began(self, what: str, thread: int, now: int, steps: int) -> None:
        self._paused(self._pauses.began(what, thread, now, self._training, steps))

    def _pause_ended(self, what: str, thread: int, now: int, steps: int) -> None:
        if changed := self._pauses.ended(what, thread, now, steps):
            self._on_begin()  # the step that it was in is no regular one
        self._paused(changed)

    def _paused(self, changed: bool) -> None:
        if changed:
            self._store.publish(self.words)

    def _resumed(self, now: int, last: int, duration: int) -> None:
        """A clean step was marked that is shorter than the time since the one before it."""
        words = self.words
        words[AT["clean_sum_ns"]] += max(0, last - words[AT["irregular_step_ns"]]) + duration
        words[AT["irregular_step_ns"]] = max(words[AT["irregular_step_ns"]], now)
        self._store.publish(words)

    def _wrapped(self, way: Mapping[str, Any], now: int) -> None:
        self.words[AT["wrappers"]] += 1
        self._ways.heard(way)
        self._tell_ways(now)
        self._look_whether_disabled()
        self._store.publish(self.words)

    def _tell_ways(self, now: int) -> None:
        """A line for each way in which ``torch.compile`` was called that no line has told yet."""
        for way in self._ways.untold() if self._is_open else ():
            self._store.note("wrapped", now, way)

    def _progress(self, of: str, done: int, total: int) -> None:
        words, under_way = self.words, done < total and bool(self._activity)
        words[AT["progress_of"]] = (1 + record.PROGRESS.index(of)) * under_way
        words[AT["progress_done"]] = done * under_way
        words[AT["progress_total"]] = total * under_way
        self._store.publish(words)

    def _turned(self) -> None:
        if self._look_whether_disabled():
            self._store.publish(self.words)

    def _look_whether_disabled(self) -> bool:
        """Whether that has changed."""
        before, by = self.words[AT["disabled"]], self._pytorch.disabled()
        if by == "stance" and self._on_purpose():
            by = ""
        self.words[AT["disabled"]] = record.DISABLED.index(by)
        return self.words[AT["disabled"]] != before

    def _look_at_memory(self, now: int) -> tuple[int, ...]:
        """What the allocator says now, which is known from then on."""
        if found := self._pytorch.memory():
            self.words[AT["memory"] : AT["memory"] + len(found)] = found
            self.words[AT["memory_ns"]] = now
        return found

    def _count_skips(self) -> None:
        """CUDA graphs that were left out as a graph first ran, with no activity around it."""
        skips = self._pytorch.counters().get(_SKIPS, 0)
        self.words[AT[_SKIPS]] += max(0, skips - self._before.get(_SKIPS, skips))
        self._before = {**self._before, _SKIPS: skips}

    def _skipped(self, now: int, values: Mapping[str, Any]) -> None:
        self._count_skips()
        self._store.publish(self.words)
        if self._told_skips < _MOST_SKIPS:
            self._told_skips += 1
            self._store.note("cudagraph_skip", now, values)

    def _fallback(self, now: int, values: Mapping[str, Any]) -> None:
        self._count("fallbacks", "fallback", now, {**values, "steps": self._store.steps()})

    def _noted(self, event: str, now: int, values: Mapping[str, Any]) -> None:
        self._store.publish(self.words)
        self._store.note(event, now, values)

    def _irregular(self, now: int, before: int, seen: int) -> None:
        """An irregular step ended at ``now``; the one before it, if any, at ``before``."""
        words = self.words
        words[AT["clean_sum_ns"]] += max(0, before - words[AT["irregular_step_ns"]])
        words[AT["irregular_step_ns"]] = max(words[AT["irregular_step_ns"]], now)
        words[AT["activities_seen"]] = seen
        memory = dict(zip(record.MEMORY, self._look_at_memory(now), strict=False))
        if memory and not before:
            self._store.note("first_step", now, memory)
        self._look_whether_disabled()
        self._count_skips()

    def _not_clean(self, steps: int, rest: int) -> None:
        words = self.words
        words[AT["clean_after"]] = max(words[AT["clean_after"]], steps)
        words[AT["longest_rest_ns"]] = max(words[AT["longest_rest_ns"]], rest)

    def _touched(self, steps: int, duration: int) -> None:
        words = self.words
        words[AT["compile_step_sum_ns"]] += duration
        recent = slice(AT["touched_steps"], AT["touched_steps"] + record.TOUCHED_KEPT)
        words[recent] = [steps, *words[recent]][: record.TOUCHED_KEPT]

    def _first(self, now: int, duration: int, *, baseline: bool) -> None:
        words = self.words
        words[AT["first_step_ns"]] = now
        words[AT["first_duration_ns"]] = duration
        if not baseline:  # after which the warm-up begins
            words[AT["episode_began_ns"]] = words[AT["episode_began_ns"]] or now

    def _long_step(self, now: int, values: dict[str, float]) -> None:
        left_out = self._left_out.before(now)
        if left_out is not None:
            took = self._pauses.behind(int(values["n"]) - 1)
            parts = {what: ns / 1e9 for what, ns in took.items()}
            self._store.note("long_step", now, {**values, **parts, "left_out": left_out})

    def _warm(self, now: int, steps: int) -> None:
        words = self.words
        self._look_at_memory(now)
        if words[AT["asynchronous"]]:
            return  # it may still be compiling aside
        if words[AT["active_since_ns"]] or words[AT["activities_seen"]] != words[AT["begun"]]:
            return  # something began, on another thread, after the mark that would have ended it
        began, before = words[AT["episode_began_ns"]], words[AT["episode_began_steps"]]
        words[AT["episode_began_ns"]] = words[AT["episode_began_steps"]] = 0
        if not words[AT["begun"]]:  # eager: there was no warm-up that could have ended
            self._look_whether_disabled()
            self._store.publish(words)
            self._store.note("eager", now, {"at": self._store.steps()}, essential=True)
            return
        words[AT["warmups"]] += 1
        warmup = [began, words[AT["last_end_ns"]], now, steps - before]
        for name in ("last_warmup", "first_warmup")[: 2 if words[AT["warmups"]] == 1 else 1]:
            words[AT[name] : AT[name] + len(warmup)] = warmup
        self._store.publish(words)
        ended, at = words[AT["last_end_ns"]], self._store.steps()
        values = {"at": at, "began": began, "ended": ended, "steps": steps - before}
        self._store.note("warm", now, values, essential=True)

    def _worth(self, values: Mapping[str, int]) -> None:
        words, steps = self.words, self._store.steps()
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

    def _opened(self, graphs: int, now: int) -> None:
        self.words[AT["graphs_before"]] = graphs
        self._is_open = True
        self._tell_ways(now)
        self._store.publish(self.words)

    def _exit(self, end: End, now: int) -> None:
        if self.words[AT["end_code"]]:
            return  # a spawned child comes here as multiprocessing ends it, and again at exit
        self._look_at_memory(now)
        self.words[AT["end_code"]] = record.ENDS.index(end.how)
        self.words[AT["exit_code"]] = 0 if end.code is None else 1 + end.code
        self.words[AT["ended_ns"]] = now
        self._store.publish(self.words)
        ended = {"how": end.how, "exception": end.exception, "code": end.code}
        self._store.note("exit", now, {**ended, "steps": self._store.steps()}, essential=True)


def _counter(name: str) -> int:
    field, _, cache = name.partition(".")
    return AT[field] + (record.CACHES.index(cache) if cache else 0)
