"""The listener that hooks call: redacts what they report and passes it to the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from warmwatch.hooks.phases import OUTSIDE, is_tracing, phase_of
from warmwatch.hooks.points import Fact, Listener
from warmwatch.process.process_tree import child_name
from warmwatch.process.torch_state import has_peers
from warmwatch.shared.record import COMPILE_INDEX, PHASES

_EVALUATING = COMPILE_INDEX["evaluating_since_ns"]
_SINCE = COMPILE_INDEX["active_since_ns"]
_OPENING = ("precompiled", "fallback")  # facts that open the record: no compilation may follow
_LONGEST_ERROR = 500

if TYPE_CHECKING:
    from warmwatch.hooks.installation import Hooks
    from warmwatch.hooks.redaction import Redactors
    from warmwatch.lifecycle.process_state import ProcessState
    from warmwatch.lifecycle.step_source import StepSource
    from warmwatch.lifecycle.warmth import AfterWarm
    from warmwatch.process.torch_state import Parameters
    from warmwatch.steps.batches import Batches
    from warmwatch.steps.steps import Steps


class HookListener(Listener):
    """The ``Listener`` of an attached process; the methods are documented there.

    Args:
        redaction: redacts PyTorch's texts. open_record: creates the record if there is none.
    """

    def __init__(
        self,
        process: ProcessState,
        hooks: Hooks,
        *,
        steps: Steps,
        step_source: StepSource,
        after_warm: AfterWarm,
        batches: Batches,
        parameters: Parameters,
        redaction: Redactors,
        open_record: Callable[[], None],
    ) -> None:
        self._process, self._hooks, self._open = process, hooks, open_record
        self._steps, self._batches, self._parameters = steps, batches, parameters
        self._redaction, self._step_source, self._after_warm = redaction, step_source, after_warm
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
        self._process.ledger.post("optimizer", {})
        self._step_source.created(optimizer)
        if has_peers():
            self._open()

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

    def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
        process = self._process
        if fact in _OPENING and not process.record.opened and child_name() is None:
            self._open()
        recorded = process.ledger.post(fact, self._redaction.fact(fact, values))
        if fact == "compilation":
            self._compiled(values, recorded)
        elif fact == "fallback":
            process.announcer.fallback(recorded)
        elif fact == "precompiled":
            process.quiet.begun()

    def _compiled(self, values: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
        self._parameters.add_graph(values.get("parameters", 0))
        if self._without_event and "failure" not in values:
            self._hooks.lacks_events(self._without_event & (values.get("phase_us") or {}).keys())
        self._process.record.set_hooks(self._hooks.names, self._hooks.missing)
        self._process.announcer.compiled(recorded)
        self._after_warm.compiled(recorded)

    def refusal(self, target: Mapping[str, Any]) -> Exception | None:
        return self._after_warm.refusal(target)

    def evaluation_began(self, model: Any) -> bool:
        """Record an evaluation, except inside one that the user or a framework reported.

        A run that calls ``model.eval()`` in every step does a rollout, or has a frozen generator.
        """
        process = self._process
        if process.ledger.block[_EVALUATING] or not self._step_source.trains(model):
            return False
        before, self._evaluated_after = self._evaluated_after, process.steps()
        if self._evaluated_after == before + 1:
            return False
        process.ledger.post("pause_began", {"what": "evaluating", "by_eval": True})
        return True

    def steps_marked(self) -> int:
        return self._process.record.writer.steps()

    def step_counted(
        self, flops: int | None, excluded: Sequence[str], dtypes: Mapping[str, int]
    ) -> None:
        self._process.record.set_flops(flops, tuple(excluded), dtypes)

    def error(self, where: str, error: Exception) -> None:
        """Count and journal an error of the agent: the sink of the guard."""
        message = self._redaction.error(error)[:_LONGEST_ERROR]
        self._process.ledger.post("error", {"where": where, "message": message})
