"""The listener that hooks call: redacts what they report and passes it to the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from warmwatch.hooks.phases import is_tracing, phase_of
from warmwatch.process.process_tree import child_name
from warmwatch.shared.record import COMPILE_INDEX, PHASES

_EVALUATING = COMPILE_INDEX["evaluating_since_ns"]

if TYPE_CHECKING:
    from warmwatch.hooks.points import Hooks
    from warmwatch.hooks.redaction import Words
    from warmwatch.lifecycle.after_warm import AfterWarm
    from warmwatch.lifecycle.process_state import ProcessState
    from warmwatch.process.torch_state import Parameters
    from warmwatch.steps.batches import Batches
    from warmwatch.steps.steps import Steps


class HookListener:
    """A ``Listener``.

    Args:
        open_record: makes the record, where there is none yet. words: how it is told.
    """

    def __init__(
        self,
        own: ProcessState,
        hooks: Hooks,
        *,
        steps: Steps,
        created: Callable[[Any], None],
        trains: Callable[[Any], bool],
        after_warm: AfterWarm,
        batches: Batches,
        parameters: Parameters,
        words: Words,
        open_record: Callable[[], None],
    ) -> None:
        self._own, self._hooks, self._open = own, hooks, open_record
        self._steps, self._batches, self._parameters = steps, batches, parameters
        self._words = words
        self._created, self._trains = created, trains
        self._after_warm = after_warm
        self._evaluated_after = -2  # how many steps
        # Phases whose events were not heard yet. PyTorch's records tell the time of each, too; that
        # of AOTAutograd holds any backend's.
        self._unheard = {"dynamo", "inductor"}

    @property
    def on_step(self) -> Callable[[Any, Any, Any], None]:
        """The optimizers' post hook."""
        return self._steps.on_step

    @property
    def on_batch(self) -> Callable[[int], None]:
        """Told of each batch that a DataLoader hands out."""
        return self._batches.on_batch

    def created(self, optimizer: Any) -> None:
        """An optimizer is under construction: from now on steps show whether the rank is warm."""
        self._own.ledger.optimizer_made()
        self._created(optimizer)

    def wrap_rare(self, wrap: Callable[[Any], Any]) -> None:
        """Wrap what the post hook calls of ours."""
        self._steps.wrap_rare(wrap)

    def begin(self, event: str, of: Mapping[str, Any] | None = None) -> None:
        """A compile event began on this thread."""
        self._hooks.rearm()
        own = self._own
        if not own.record.opened and (is_tracing(event) or child_name() is None):
            self._open()
        own.ledger.begin(event, of)
        own.watch.begun()
        if self._unheard:
            phase = phase_of(event)
            self._unheard.discard("" if phase is None else PHASES[phase])

    def end(self, event: str) -> None:
        """A compile event ended on this thread."""
        own = self._own
        own.ledger.end(event)
        if is_tracing(event):
            own.record.hooked(self._hooks.names, self._hooks.missing)
        own.watch.ended()
        own.quiet.begun()
        self._after_warm.activity_ended()

    def recompile(self, reason: str, category: str, where: Mapping[str, Any]) -> None:
        """This thread begins a recompile."""
        self._own.ledger.recompile(self._words.recompile(reason), category, where)

    def compilation(self, kind: str, values: Mapping[str, Any]) -> None:
        """A compilation ended on this thread."""
        if reason := values.get("reason"):
            values = {**values, "reason": self._words.recompile(reason)}
        if skip := values.get("cudagraph_skip"):
            values = {**values, "cudagraph_skip": self._words.graph_break(skip)}
        if failed := values.get("failure_reason"):
            values = {**values, "failure_reason": self._words.graph_break(failed)}
        self._parameters.compiled(values.get("parameters", 0))
        told = self._own.ledger.compilation(kind, values)
        if self._unheard and "failure" not in values:
            self._hooks.lacks_events(self._unheard & (values.get("phase_us") or {}).keys())
        self._own.record.hooked(self._hooks.names, self._hooks.missing)
        self._own.announcer.compiled(kind, told)
        self._after_warm.compiled(kind, told)

    def refusal(self, of: Mapping[str, Any]) -> Exception | None:
        """What to raise instead of compiling this kernel of the user's."""
        return self._after_warm.refusal(of)

    def cached(self, cache: str, *, hit: bool) -> None:
        """A cache that PyTorch does not count was asked."""
        self._own.ledger.cached(cache, hit=hit)

    def cache_lookup(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        """A compile cache was asked: of a bypass the reason is told, reduced."""
        reason = values.get("reason")
        told = self._words.graph_break(str(reason)) if reason else None
        self._own.ledger.cache_lookup(cache, verdict, {**values, "reason": told})

    def save_began(self) -> None:
        """This thread began to save."""
        self._own.ledger.pause_began("saving")

    def save_ended(self) -> None:
        """This thread ended what it began to save last."""
        self._own.ledger.pause_ended("saving")

    def evaluation_began(self, model: Any) -> bool:
        """``model`` was put into evaluation mode; whether it is an evaluation that now begins.

        It is none where the rank evaluates already, as a framework or the user told. What comes in
        each step is part of the step: a rollout, a generator that stands still.
        """
        own = self._own
        if own.ledger.words[_EVALUATING] or not self._trains(model):
            return False
        before, self._evaluated_after = self._evaluated_after, own.steps()
        if self._evaluated_after == before + 1:
            return False
        own.ledger.pause_began("evaluating")
        return True

    def evaluation_ended(self) -> None:
        """A model was put into training mode after that."""
        self._own.ledger.pause_ended("evaluating")

    def cells_left(self) -> None:
        """No cell of the notebook runs any more."""
        self._own.ledger.pause_began("between_cells")

    def cell_began(self) -> None:
        """One runs again."""
        self._own.ledger.pause_ended("between_cells")

    def fallback(self, values: Mapping[str, Any]) -> None:
        """A frame hit the recompile limit."""
        self._own.ledger.fallback(values)
        self._own.announcer.fallback(values)

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None:
        """CUDA graphs were left out: the reason is told, reduced."""
        self._own.ledger.cudagraph_skipped(self._words.graph_break(reason), where)

    def wrapped(self, way: Mapping[str, Any]) -> None:
        """The user's program handed something to ``torch.compile``."""
        self._own.ledger.wrapped(way)

    def progress(self, of: str, done: int, total: int) -> None:
        """So many of what the activity counts are done."""
        self._own.ledger.progress(of, done, total)

    def precompiled(self, kind: str) -> None:
        """Code that was compiled ahead of time runs."""
        own = self._own
        if not own.record.opened and child_name() is None:
            self._open()
        own.ledger.precompiled(kind)
        own.quiet.begun()

    def turned(self) -> None:
        """Compilation was perhaps turned off, or on again."""
        self._own.ledger.turned()

    def error(self, where: str, error: Exception) -> None:
        """Something of ours failed: the guard's sink."""
        self._own.ledger.error(where, self._words.error(error))
