"""Which calls are steps: an optimizer's, until the program marks its steps by hand."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from warmwatch.steps.attribution import StepAttribution

if TYPE_CHECKING:
    from warmwatch.hooks.points import Hooks
    from warmwatch.lifecycle.process_state import ProcessState
    from warmwatch.process.torch_state import Parameters
    from warmwatch.steps.steps import Steps


_MOST_MODELS = 100  # whose part in the training is kept


class StepSource:
    """Marks steps by hand, and decides about the calls of optimizers.

    Args:
        open_record: makes the record, where there is none yet.

    Attributes:
        steps: the step functions, which ask ``is_step``: so they are made later.
    """

    steps: Steps

    def __init__(
        self,
        own: ProcessState,
        hooks: Hooks,
        parameters: Parameters,
        open_record: Callable[[], None],
    ) -> None:
        self._own, self._hooks, self._parameters = own, hooks, parameters
        self._open = open_record
        self._rounds = StepAttribution(
            lambda optimizer: self.steps.lead(optimizer), own.steps, parameters.met
        )
        self._explicit = False
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._models: dict[int, tuple[weakref.ref[Any], bool]] = {}  # by id: whether it trains

    def step(self) -> None:
        """An explicit step mark; the first one ends the watching of the optimizer."""
        if not self._explicit:
            self.by_hand()
            if self._rounds.leader:
                return  # the optimizer has marked this very step already
        self.steps.on_step(None, (), {})

    def by_hand(self, optimizers: Iterable[Any] = ()) -> None:
        """Steps are marked explicitly from here on, and none was yet.

        ``optimizers``: those of the training, which are not asked for their parameters any more.
        """
        self._open()
        for optimizer in optimizers:
            self._meet(optimizer)
            self._parameters.met(optimizer)
        self._own.record.has_parameters(self._parameters.seen)
        self._hooks.exclude("optimizer")
        self._hooks.exclude("new_optimizers")
        self.steps.lead(id(None))
        self._explicit = True  # last: a signal handler may have raised before

    def is_step(self, optimizer: Any) -> bool:
        """Asked about the first call of all, so the record is there before the first step."""
        if self._explicit:
            # An optimizer's call that began before the hook was removed, or on another thread.
            self.steps.lead(id(None))
            return optimizer is None
        self._open()
        self._meet(optimizer)
        is_step = self._rounds.is_step(optimizer)
        self._own.record.has_parameters(self._parameters.seen)
        return is_step

    def created(self, optimizer: Any) -> None:
        """An optimizer is under construction: it counts from its first call on."""
        if not self._explicit:
            self._meet(optimizer)
            self._rounds.created(optimizer)

    def trains(self, model: Any) -> bool:
        """Whether ``model`` holds all parameters of an optimizer: no part of the model does."""
        known = self._models.get(id(model))
        if known is None or known[0]() is not model:
            if len(self._models) >= _MOST_MODELS:
                self._models.clear()
            known = weakref.ref(model), self._holds_all(model)
            self._models[id(model)] = known
        return known[1]

    def _holds_all(self, model: Any) -> bool:
        held = {id(parameter) for parameter in model.parameters()}
        groups = [getattr(one, "param_groups", ()) for one in self._optimizers]
        stepped = [{id(p) for group in one for p in group["params"]} for one in groups]
        return any(ids and ids <= held for ids in stepped)

    def _meet(self, optimizer: Any) -> None:
        if optimizer is not None and optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            self._models.clear()

    def renew(self) -> None:
        """In a forked child, which has marked none yet."""
        self._explicit = False
        self._rounds.renew()
