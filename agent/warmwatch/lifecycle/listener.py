"""The listener that hooks call: redacts what they report and passes it to the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from warmwatch.hooks.phases import OUTSIDE, is_tracing, phase_of
from warmwatch.hooks.points import Listener
from warmwatch.process.process_tree import child_name
from warmwatch.shared.record import COMPILE_INDEX, PHASES

_EVALUATING = COMPILE_INDEX["evaluating_since_ns"]
_SINCE = COMPILE_INDEX["active_since_ns"]

if TYPE_CHECKING:
    from warmwatch.hooks.installation import Hooks
    from warmwatch.hooks.redaction import Redactors
    from warmwatch.lifecycle.after_warm import AfterWarm
    from warmwatch.lifecycle.process_state import ProcessState
    from warmwatch.process.parameters import Parameters
    from warmwatch.steps.batches import Batches
    from warmwatch.steps.steps import Steps


class HookListener(Listener):
    """The ``Listener`` of an attached process; the methods are documented there.

    Args:
        created: called with each new optimizer. trains: whether the run trains a model.
        redaction: redacts PyTorch's texts.
        open_record: creates the record if there is none.
    """

    def __init__(
        self,
        process: ProcessState,
        hooks: Hooks,
        *,
        steps: Steps,
        created: Callable[[Any], None],
        trains: Callable[[Any], bool],
        after_warm: AfterWarm,
        batches: Batches,
        parameters: Parameters,
        redaction: Redactors,
        open_record: Callable[[], None],
    ) -> None:
        self._process, self._hooks, self._open = process, hooks, open_record
        self._steps, self._batches, self._parameters = steps, batches, parameters
        self._redaction = redaction
        self._created, self._trains = created, trains
        self._after_warm = after_warm
        self._evaluated_after = -2  # number of steps at the last evaluation
        # Phases without an event so far. If PyTorch's records report time in one of them, its event
        # has another name in this version. Not AOTAutograd, whose time includes any backend's.
        self._without_event = {"dynamo", "inductor"}

    @property
    def on_step(self) -> Callable[[Any], None]:
        return self._steps.on_step

    @property
    def on_batch(self) -> Callable[[int], None]:
        return self._batches.on_batch

    def created(self, optimizer: Any) -> None:
        self._process.ledger.optimizer_made()
        self._created(optimizer)

    def wrap_rare(self, wrap: Callable[[Any], Any]) -> None:
        self._steps.wrap_rare(wrap)

    def begin(self, event: str, target: Mapping[str, Any] | None = None) -> None:
        process = self._process
        outermost = not process.ledger.block[_SINCE]
        if outermost:
            self._hooks.rearm()
        if not process.record.opened and (is_tracing(event) or child_name() is None):
            self._open()
        process.ledger.begin(event, target)
        if outermost:
            process.watch.begun()
            process.report_as_worker((target or {}).get("name"))
        if self._without_event:
            phase = phase_of(event)
            self._without_event.discard("" if phase is None else PHASES[phase])

    def outside_began(self, program: str) -> bool:
        """A thread that marks no steps builds beside the training, unless no step was marked yet.

        What waits within another compile event is counted by that event.
        """
        ledger = self._process.ledger
        training = ledger.pausing.training
        if ledger.block[_SINCE] or training not in (None, get_ident()):
            return False
        self.begin(OUTSIDE, {"name": program, "kind": OUTSIDE})
        return True

    def end(self, event: str) -> None:
        process = self._process
        process.ledger.end(event)
        if not process.ledger.block[_SINCE]:
            process.record.set_hooks(self._hooks.names, self._hooks.missing)
            process.quiet.begun()
            process.report_as_worker()
            self._after_warm.activity_ended()

    def recompile(self, reason: str, category: str, target: Mapping[str, Any]) -> None:
        self._process.ledger.recompile(self._redaction.recompile(reason), category, target)

    def compilation(self, kind: str, values: Mapping[str, Any]) -> None:
        if reason := values.get("reason"):
            values = {**values, "reason": self._redaction.recompile(reason)}
        if skip := values.get("cudagraph_skip"):
            values = {**values, "cudagraph_skip": self._redaction.graph_break(skip)}
        if failed := values.get("failure_reason"):
            values = {**values, "failure_reason": self._redaction.failure(failed)}
        self._parameters.add_graph(values.get("parameters", 0))
        recorded = self._process.ledger.compilation(kind, values)
        if self._without_event and "failure" not in values:
            self._hooks.lacks_events(self._without_event & (values.get("phase_us") or {}).keys())
        self._process.record.set_hooks(self._hooks.names, self._hooks.missing)
        self._process.announcer.compiled(kind, recorded)
        self._after_warm.compiled(kind, recorded)

    def refusal(self, target: Mapping[str, Any]) -> Exception | None:
        return self._after_warm.refusal(target)

    def counted(self, counter: str) -> None:
        self._process.ledger.counted(counter)

    def cache_lookup(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        reason = values.get("reason")
        redacted = self._redaction.graph_break(str(reason)) if reason else None
        self._process.ledger.cache_lookup(cache, verdict, {**values, "reason": redacted})

    def pause_began(self, what: str) -> None:
        self._process.ledger.pause_began(what)

    def pause_ended(self, what: str) -> None:
        self._process.ledger.pause_ended(what)

    def evaluation_began(self, model: Any) -> bool:
        """Record an evaluation, except inside one that the user or a framework reported.

        A run that calls ``model.eval()`` in every step does a rollout, or has a frozen generator.
        """
        process = self._process
        if process.ledger.block[_EVALUATING] or not self._trains(model):
            return False
        before, self._evaluated_after = self._evaluated_after, process.steps()
        if self._evaluated_after == before + 1:
            return False
        process.ledger.pause_began("evaluating", by_eval=True)
        return True

    def evaluation_ended(self) -> None:
        self._process.ledger.pause_ended("evaluating", by_train=True)

    def fallback(self, values: Mapping[str, Any]) -> None:
        self._process.ledger.fallback(values)
        self._process.announcer.fallback(values)

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None:
        self._process.ledger.cudagraph_skipped(self._redaction.graph_break(reason), where)

    def spilled(self, kernel: str, registers: int, seconds: float | None) -> None:
        self._process.ledger.spilled(kernel, registers, seconds)

    def compile_called(self, way: Mapping[str, Any], *, trains: bool) -> None:
        self._process.ledger.compile_called(way, trains=trains)

    def progress(self, subject: str, done: int, total: int) -> None:
        self._process.ledger.progress(subject, done, total)

    def precompiled(self, kind: str) -> None:
        process = self._process
        if not process.record.opened and child_name() is None:
            self._open()
        process.ledger.precompiled(kind)
        process.quiet.begun()

    def graph_counted(self, flops: int | None, excluded: Sequence[str]) -> None:
        self._process.ledger.graph_counted(flops, excluded)

    def steps_marked(self) -> int:
        return self._process.record.writer.steps()

    def step_counted(
        self, flops: int | None, excluded: Sequence[str], dtypes: Mapping[str, int]
    ) -> None:
        self._process.record.set_flops(flops, tuple(excluded), dtypes)

    def check_disabled(self) -> None:
        self._process.ledger.check_disabled()

    def error(self, where: str, error: Exception) -> None:
        """Count and journal an error of the agent: the sink of the guard."""
        self._process.ledger.error(where, self._redaction.error(error))
