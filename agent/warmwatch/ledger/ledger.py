"""The ledger: facts from hooks and the user's program, folded into the compile block's
counters.

The caller's thread reads what only it has at that moment: clock, thread, step count. The rest runs
in a queue, one fact at a time, so the counters have one writer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from warmwatch.hooks.dynamo.events import Compiling
from warmwatch.ledger.activities import Activities
from warmwatch.ledger.compilations import Compilations
from warmwatch.ledger.compile_calls import CompileCalls
from warmwatch.ledger.counters import CounterStore, FirstStep, PytorchState, Store
from warmwatch.ledger.pauses import Pausing
from warmwatch.ledger.step_facts import StepFacts
from warmwatch.process.ending import End
from warmwatch.process.threads import SerialQueue
from warmwatch.shared import record
from warmwatch.shared.bounded import MOST_THREADS, Bounded
from warmwatch.shared.record import COMPILE_INDEX as AT

if TYPE_CHECKING:
    from warmwatch.hooks.installation import Hooks

_LARGEST = 2**64 - 1
_LONGEST_KERNEL = 200
# The events of CUDA graphs (torch 2.8 to 2.15) -> the field of the record that counts them.
_OF_GRAPHS = {"cudagraphify.get_container": "new_sizes", "CUDAGraphNode.record": "recorded"}


class Run:
    """What the user reported about the run's steps, and the run's end."""

    def __init__(self, counters: CounterStore, state: PytorchState) -> None:
        self._block, self._store, self._state = counters.block, counters.store, state

    def set_work(self, values: Mapping[str, int]) -> None:
        block, steps = self._block, self._store.steps()
        for unit in ("tokens", "samples"):
            per_step, before = AT[f"{unit}_per_step"], AT[f"{unit}_before"]
            if block[per_step]:
                done = block[before] + (steps - block[AT["worth_since"]]) * block[per_step]
            else:  # reported late, it also applies to earlier steps
                done = steps * values.get(unit, 0)
            block[before] = min(done, _LARGEST)
            block[per_step] = values.get(unit, block[per_step])
        block[AT["worth_since"]] = steps
        self._store.publish(block)

    def exit(self, end: End, now: int) -> None:
        if self._block[AT["end_code"]]:
            return  # a spawned child comes here when multiprocessing ends it, and again at exit
        self._state.read_memory(now)
        self._block[AT["end_code"]] = record.ENDS.index(end.how)
        self._block[AT["exit_code"]] = 0 if end.code is None else 1 + end.code
        self._block[AT["ended_ns"]] = now
        self._store.publish(self._block)
        ended = {"how": end.how, "exception": end.exception, "code": end.code}
        ended.update(end.place or {}, steps=self._store.steps())
        self._store.note("exit", now, ended, essential=True)


class Ledger:
    """Compile facts of one process.

    Args:
        pytorch: reads from PyTorch. redact_break: redacts the reason of a graph break.
        clock: monotonic nanoseconds.
        quiet_ns: how long nothing may compile before a process without steps is warm; 0: never.

    Attributes:
        block: the counters of the compile block. marks: receives facts from step marks.
        pausing: pauses, and the thread that marks the steps.
    """

    def __init__(
        self,
        store: Store,
        pytorch: Hooks,
        redact_break: Callable[[str], str],
        *,
        quiet_ns: int = 0,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._store, self._clock, self._queue = store, clock, SerialQueue()
        self._counters = counters = CounterStore(store)
        self.block = counters.block
        self.block[AT["quiet_ns"]] = quiet_ns
        self._state = state = PytorchState(counters, pytorch, redact_break)
        first_step = FirstStep(self.block)
        self._activities = Activities(counters, state, first_step)
        self._compilations = Compilations(counters, state, self._activities)
        self.pausing = Pausing(counters, pytorch, first_step)
        self._compile_calls = CompileCalls(counters, state, first_step)
        self._run = Run(counters, state)
        self.marks = StepFacts(counters, state, self.pausing, first_step, self._queue, clock)
        self._compiling = Compiling()
        # by thread: kernels waited for in its compilation, operations of the graphs in it, and
        # events of CUDA graphs since its last record; a thread may end before the compilation does
        self._kernels: Bounded[int, int] = Bounded(MOST_THREADS)
        self._flops: Bounded[int, dict[str, Any]] = Bounded(MOST_THREADS)
        self._cudagraphs: Bounded[int, dict[str, int]] = Bounded(MOST_THREADS)

    def on_begin(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` when activity has begun, on any thread."""
        self._counters.on_begin = callback

    def on_purpose(self, holds: Callable[[], bool]) -> None:
        """While ``holds()``, the stance that turns compilation off is the agent's own."""
        self._state.on_purpose = holds

    def active_since(self) -> int:
        """Begin of the activity in progress in monotonic nanoseconds; 0 if there is none."""
        return self.block[AT["active_since_ns"]]

    def begin(self, event: str, target: Mapping[str, Any] | None = None) -> None:
        """The calling thread began ``event``; ``target``: what is compiled, as journal values."""
        thread, now = threading.get_ident(), self._clock()
        if target:
            target = self._compiling.begun(thread, target)
        if (field := _OF_GRAPHS.get(event)) is not None:
            counts = self._cudagraphs.get(thread, {})
            self._cudagraphs[thread] = {**counts, field: counts.get(field, 0) + 1}
        self._queue.post(self._activities.begin, thread, event, now, target or {})

    def end(self, event: str) -> None:
        """The calling thread ended ``event``."""
        thread, now = threading.get_ident(), self._clock()
        self._queue.post(self._activities.end, thread, event, now)

    def abandon(self) -> None:
        """End what the calling thread began: it marks a step, so nothing of it is in progress.

        The same holds for threads that no longer exist. An end can be lost: a compiler fails in an
        unusual way, or a signal handler raises during recording. Without this the rank would then
        compile for ever. Other threads that compile now did not hold up the step, which is
        complete: they compile in the background.
        """
        if not self.block[AT["active_since_ns"]] and not self.block[AT["background_since_ns"]]:
            return
        now = self._clock()
        over = [threading.get_ident(), *self._activities.gone(sys._current_frames())]
        self._queue.post(self._activities.abandoned, over, now)

    def progress(self, subject: str, done: int, total: int) -> None:
        """The activity in progress has done ``done`` of ``total``; its end clears that."""
        if subject == "kernels" and not done:
            thread = threading.get_ident()
            self._kernels[thread] = self._kernels.get(thread, 0) + total
        self._queue.post(self._activities.progress, subject, done, total)

    def recompile(self, reason: str, category: str, target: Mapping[str, Any]) -> None:
        """The calling thread begins a recompile, for this reason.

        Reported immediately, so that no reader shows an older reason during the compilation.
        """
        now = self._clock()
        thread = threading.get_ident()
        why = self._compiling.recompile(thread, reason, category, target)
        values = {**why, **target, **self._compiling.circumstances(thread)}
        self._queue.post(self._store.note, "recompile", now, values)

    def compilation(self, kind: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A compilation of the calling thread ended; ``values`` are its journal values.

        Returns them with what is known since its begin.
        """
        now = self._clock()
        thread = threading.get_ident()
        if kind == "forward":
            values = self._compiling.ended(thread, values)
        if code := self._compiling.code(values.get("id")):
            values = {**values, "code": code}
        if self.block[AT["evaluating_since_ns"]]:
            values = {**values, "evaluating": True}
        if kind == "cudagraph":
            values = {**values, **self._cudagraphs.pop(thread, {})}
        if kernels := self._kernels.pop(thread, 0):
            values = {**values, "kernels": kernels}
        values = {**values, **self._flops.pop(thread, {})}
        self._queue.post(self._compilations.compilation, kind, values, now)
        return values

    def graph_counted(self, flops: int | None, excluded: Sequence[str]) -> None:
        """The calling thread compiles a graph with these floating-point operations."""
        thread = threading.get_ident()
        flop = self._flops.get(thread, {"flops": 0})
        both = None if flops is None or flop["flops"] is None else flop["flops"] + flops
        self._flops[thread] = flop = {**flop, "flops": both}
        if excluded:
            flop["excluded"] = list(dict.fromkeys((*flop.get("excluded", ()), *excluded)))[:8]

    def counted(self, counter: str) -> None:
        """One more of what PyTorch does not count: a counter such as ``cache_hits.triton``."""
        self._queue.post(self._counters.add, counter)

    def cache_lookup(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        now = self._clock()
        self._queue.post(self._compilations.cache_lookup, now, cache, verdict, values)

    def fallback(self, values: Mapping[str, Any]) -> None:
        """Some calls of a function run eagerly; see ``shared/fallbacks.py``."""
        now = self._clock()
        if "limit" in values:
            values = {**values, **self._compiling.refused(threading.get_ident())}
        self._queue.post(self._compilations.fallback, now, values)

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None:
        """CUDA graphs were skipped; PyTorch has counted it already."""
        now = self._clock()
        self._queue.post(
            lambda: self._compilations.cudagraph_skipped(now, {"reason": reason, **where})
        )

    def spilled(self, kernel: str, registers: int, seconds: float | None) -> None:
        """A kernel spills registers; ``seconds`` of one launch, if it was measured."""
        now = self._clock()
        measured = {} if seconds is None else {"seconds": round(seconds, 9)}
        values = {"kernel": kernel[:_LONGEST_KERNEL], "registers": registers, **measured}
        self._queue.post(self._compilations.spilled, now, values)

    def pause_began(self, what: str, *, by_eval: bool = False) -> None:
        """The calling thread began to save or to evaluate: one of ``pauses.COUNTERS``.

        ``by_eval``: ``model.eval()`` did, so ``model.train()`` may end it.
        """
        thread, now, steps = threading.get_ident(), self._clock(), self._store.steps()
        self._queue.post(self.pausing.began, what, thread, now, steps, by_eval)

    def pause_ended(self, what: str, *, by_train: bool = False) -> None:
        """The calling thread ended the last pause of this kind that it began.

        ``by_train``: ``model.train()`` did, which ends only what ``model.eval()`` began.
        """
        thread, now, steps = threading.get_ident(), self._clock(), self._store.steps()
        self._queue.post(self.pausing.ended, what, thread, now, steps, by_train)

    def compile_called(self, way: Mapping[str, Any], *, trains: bool) -> None:
        """The user's program called ``torch.compile`` with these arguments."""
        now, steps = self._clock(), self._store.steps()
        self._queue.post(self._compile_calls.compile_called, way, now, 1 + steps if trains else 0)

    def optimizer_made(self) -> None:
        """The process made an optimizer: from now on only steps show that it is warm."""
        self._queue.post(self._compile_calls.optimizer_made)

    def precompiled(self, kind: str) -> None:
        """Code that was compiled ahead of time runs; ``kind``: one of ``record.PRECOMPILED``."""
        self._queue.post(self._compile_calls.precompiled, {kind})

    def check_disabled(self) -> None:
        """Record whether compilation is turned off; called when that may have changed."""
        self._queue.post(self._compile_calls.check_disabled)

    def error(self, where: str, message: str) -> None:
        now = self._clock()
        values = {"where": where, "message": message[:500]}
        self._queue.post(self._counters.count, "agent_errors", "error", now, values)

    def set_work(self, values: Mapping[str, int]) -> None:
        """The user set the ``tokens`` or ``samples`` of a step, or both."""
        self._queue.post(self._run.set_work, values)

    def opened(self, graphs: int) -> None:
        """The record exists; ``graphs`` had been captured before it began."""
        now = self._clock()
        self._queue.post(self._compile_calls.opened, graphs, now)

    def exit(self, end: End) -> None:
        """The process ends, or the agent is detached. The first reported end counts."""
        now = self._clock()
        self._queue.post(self._run.exit, end, now)

    def compiling(self) -> tuple[int, ...]:
        """The threads with open activities."""
        return self._activities.threads()

    def compile_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""
        return self._activities.total_ns()
