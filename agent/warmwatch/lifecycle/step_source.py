"""Which calls are steps: an optimizer's, until the program marks its steps by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from warmwatch.shared.bounded import OfObjects
from warmwatch.steps.attribution import StepAttribution

if TYPE_CHECKING:
    from warmwatch.hooks.installation import Hooks
    from warmwatch.lifecycle.process_state import ProcessState
    from warmwatch.process.torch_state import Parameters
    from warmwatch.steps.steps import Steps


_MOST_OPTIMIZERS = 4096
_MOST_MODELS = 4096  # a program may put each frozen layer into evaluation mode at every step


class StepSource:
    """Marks steps by hand, and decides which calls of optimizers are steps.

    Args:
        open_record: creates the record if there is none.

    Attributes:
        steps: the step functions, set after construction because they call ``is_step``.
    """

    steps: Steps

    def __init__(
        self,
        process: ProcessState,
        hooks: Hooks,
        parameters: Parameters,
        open_record: Callable[[], None],
    ) -> None:
        self._process, self._hooks, self._parameters = process, hooks, parameters
        self._open = open_record
        self._attribution = StepAttribution(
            lambda optimizer: self.steps.lead(optimizer), process.steps, parameters.add_optimizer
        )
        self._explicit = False
        self._optimizers: OfObjects[bool] = OfObjects(_MOST_OPTIMIZERS)
        self._trains: OfObjects[bool] = OfObjects(_MOST_MODELS)

    def step(self) -> None:
        """Mark a step by hand. From the first call on, optimizers mark none."""
        if not self._explicit:
            self.by_hand()
            if self._attribution.leads:
                return  # the optimizer has marked this step already
        self.steps.on_step(None)

    def by_hand(self, optimizers: Iterable[Any] = ()) -> None:
        """Count only steps that are marked by hand from now on.

        ``optimizers``: those of the training; their parameters are counted here, since their calls
        are not seen any more.
        """
        self._open()
        for optimizer in optimizers:
            self._meet(optimizer)
            self._parameters.add_optimizer(optimizer)
        self._process.record.set_parameters(self._parameters.total)
        self._hooks.exclude("compiled_steps")
        self._hooks.exclude("optimizer")
        self._hooks.exclude("new_optimizers")
        self.steps.lead(id(None))
        self._explicit = True  # last: a signal handler may raise before it

    def is_step(self, optimizer: Any) -> bool:
        """Whether this call of ``optimizer`` is a step. The first call opens the record."""
        if self._explicit:
            # A call of an optimizer that began before the hook was removed, or on another thread.
            self.steps.lead(id(None))
            return optimizer is None
        self._open()
        self._meet(optimizer)
        is_step = self._attribution.is_step(optimizer)
        self._process.record.set_parameters(self._parameters.total)
        return is_step

    def created(self, optimizer: Any) -> None:
        """Register an optimizer whose constructor runs."""
        if not self._explicit:
            self._meet(optimizer)
            self._attribution.created(optimizer)

    def trains(self, model: Any) -> bool:
        """Whether ``model`` holds all parameters of an optimizer; a part of a model does not."""
        trains = self._trains.get(model)
        if trains is None:
            trains = self._holds_all(model)
            self._trains.set(model, trains)
        return trains

    def _holds_all(self, model: Any) -> bool:
        held = {id(parameter) for parameter in model.parameters()}
        groups = [getattr(value, "param_groups", ()) for value in self._optimizers.living()]
        stepped = [{id(p) for group in value for p in group["params"]} for value in groups]
        return any(ids and ids <= held for ids in stepped)

    def _meet(self, optimizer: Any) -> None:
        if optimizer is not None and not self._optimizers.get(optimizer):
            self._optimizers.set(optimizer, True)
            self._trains = OfObjects(_MOST_MODELS)

    def renew(self) -> None:
        """Reset in a forked child, which has marked no step."""
        self._explicit = False
        self._attribution.renew()
