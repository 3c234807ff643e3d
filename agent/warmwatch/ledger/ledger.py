"""The ledger: facts from hooks and the user's program, folded into the compile block's
counters.

The caller's thread reads what only it has at that moment: clock, thread, step count. The rest runs
in a queue, one fact at a time, so the counters have one writer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import F_OK, access
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from warmwatch.hooks.dynamo.events import Compiling
from warmwatch.ledger.activities import Activities
from warmwatch.ledger.compilations import Compilations
from warmwatch.ledger.counters import CounterStore, FirstStep, PytorchState, Store
from warmwatch.ledger.pauses import Pausing
from warmwatch.ledger.step_facts import Program, StepFacts
from warmwatch.process.ending import End
from warmwatch.process.threads import SerialQueue
from warmwatch.shared.bounded import MOST_THREADS, Bounded
from warmwatch.shared.record import COMPILE_INDEX as AT

if TYPE_CHECKING:
    from warmwatch.hooks.installation import Hooks

# The events of CUDA graphs (torch 2.8 to 2.15) -> the field of the record that counts them.
_OF_GRAPHS = {"cudagraphify.get_container": "new_sizes", "CUDAGraphNode.record": "recorded"}

_TASKS = "/proc/self/task"  # a folder for each thread that exists


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
        compilations = self._compilations = Compilations(counters, state, self._activities)
        self.pausing = Pausing(counters, pytorch, first_step)
        program = self._program = Program(counters, state, first_step)
        self.marks = StepFacts(counters, state, self.pausing, first_step, self._queue)
        # handlers of posted facts; a fact without one is a line of the journal alone
        self._handlers: Mapping[str, Callable[[str, int, Mapping[str, Any]], None]] = {
            "baseline": counters.publish_with_line,
            "cache": compilations.cache,
            "compilation": compilations.compilation,
            "counted": counters.counted,
            "cudagraph_skip": compilations.cudagraph_skip,
            "disabled": program.disabled,
            "error": partial(counters.count, "agent_errors"),
            "fallback": compilations.fallback,
            "opened": program.opened,
            "optimizer": program.optimizer,
            "pause_began": self.pausing.began,
            "pause_ended": self.pausing.ended,
            "precompiled": program.precompiled,
            "progress": self._activities.progress,
            "settled": self.marks.settled,
            "spill": compilations.spill,
            "work": program.work,
            "wrapped": program.wrapped,
        }
        self._compiling = Compiling()
        # by thread: its native id, kernels waited for in its compilation, operations of the graphs
        # in it, and events of CUDA graphs since its last record; a thread may end before the
        # compilation does
        self._native: Bounded[int, int] = Bounded(MOST_THREADS)
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
        self._native[thread] = threading.get_native_id()
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
        over = [threading.get_ident(), *filter(self._is_gone, self._activities.threads())]
        self._queue.post(self._activities.abandoned, over, now)

    def _is_gone(self, thread: int) -> bool:
        """Whether the thread no longer exists; not if its native id or /proc is unknown.

        ``sys._current_frames()`` would tell it as well, and can hang the process: before Python
        3.12 a garbage collection in it may wait for a thread that waits for its lock.
        """
        native = self._native.get(thread)
        if native is None or access(f"{_TASKS}/{native}", F_OK):
            return False
        return access(_TASKS, F_OK)

    def post(self, fact: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A fact of the calling thread, with redacted texts; see ``hooks.points.Fact``.

        Returns its values with what is known of the thread's compilation.
        """
        thread, now = threading.get_ident(), self._clock()
        if fact == "recompile":
            self._compiling.recompile(thread, values)
            values = {**values, **self._compiling.circumstances(thread)}
        elif fact == "fallback" and "limit" in values:
            values = {**values, **self._compiling.refused(thread)}
        elif fact == "compilation":
            values = self._completed(thread, values)
        elif fact == "progress" and values["subject"] == "kernels" and not values["done"]:
            self._kernels[thread] = self._kernels.get(thread, 0) + values["total"]
        elif fact in ("pause_began", "pause_ended"):
            values = {**values, "thread": thread, "steps": self._store.steps()}
        elif fact == "graph":
            self._add_graph(thread, values["flops"], values["excluded"])
            return values  # its compilation's fact adds it
        self._queue.post(self._handlers.get(fact, self._store.note), fact, now, values)
        return values

    def _completed(self, thread: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """``values`` of a compilation, with what is known since its begin."""
        kind = values["kind"]
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
        return {**values, **self._flops.pop(thread, {})}

    def _add_graph(self, thread: int, flops: int | None, excluded: Sequence[str]) -> None:
        """``thread`` compiles a graph with these floating-point operations."""
        flop = self._flops.get(thread, {"flops": 0})
        both = None if flops is None or flop["flops"] is None else flop["flops"] + flops
        self._flops[thread] = flop = {**flop, "flops": both}
        if excluded:
            flop["excluded"] = list(dict.fromkeys((*flop.get("excluded", ()), *excluded)))[:8]

    def exit(self, end: End) -> None:
        """The process ends, or the agent is detached. The first reported end counts."""
        now = self._clock()
        self._queue.post(self._program.exit, end, now)

    def training_thread(self) -> int | None:
        """The thread that marks the steps, or compiled first while there are none."""
        return self.pausing.training or self._activities.first_thread

    def compiling(self) -> tuple[int, ...]:
        """The threads with open activities."""
        return self._activities.threads()

    def compile_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""
        return self._activities.total_ns()
