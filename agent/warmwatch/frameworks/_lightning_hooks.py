"""Lightning's callback, for both of its packages."""

from __future__ import annotations

from typing import Any

import warmwatch
from warmwatch.frameworks._reporting import Phases, guarded, suggest, trains

_UNNAMED = (None, "", "lightning_logs")  # what loggers are called whom nobody gave a name
# those whose name is the same in every rank; others ask a server, and from the first rank alone
_NAMED_ALIKE = frozenset({"TensorBoardLogger", "CSVLogger", "WandbLogger"})


class Hooks:
    """Of several in one trainer the first one marks the steps."""

    def __init__(self) -> None:
        super().__init__()
        trains()
        self._phases = Phases()
        self._step = 0

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self._step = trainer.global_step
        if named := _name_of(trainer):
            suggest(run=named)

    @guarded
    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """A batch that no optimizer stepped for is a part of the step to come."""
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if next(one for one in trainer.callbacks if isinstance(one, Hooks)) is self:
            warmwatch.step()

    @guarded
    def on_validation_start(self, *_: Any) -> None:
        self._phases.begin("evaluating")

    @guarded
    def on_validation_end(self, *_: Any) -> None:
        self._phases.end("evaluating")

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end

    @guarded
    def on_exception(self, *_: Any) -> None:
        self._phases.end_all()


def _name_of(trainer: Any) -> str | None:
    """The run's name as a logger has it; of several ranks all have to give the same."""
    alone = trainer.world_size == 1
    loggers = (one for one in trainer.loggers if alone or type(one).__name__ in _NAMED_ALIKE)
    names = (getattr(logger, "name", None) for logger in loggers)
    return next((str(name) for name in names if name not in _UNNAMED), None)


class FabricHooks:
    """For ``fabric.call("on_validation_start")`` and its like; steps are the optimizers'."""

    def __init__(self) -> None:
        trains()
        self._phases = Phases()

    @guarded
    def on_validation_start(self, *_: Any, **__: Any) -> None:
        self._phases.begin("evaluating")

    @guarded
    def on_validation_end(self, *_: Any, **__: Any) -> None:
        self._phases.end("evaluating")

    on_test_start = on_validation_start
    on_test_end = on_validation_end
