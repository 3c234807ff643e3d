"""What Lightning's callback tells, whichever of its two packages calls it."""

from __future__ import annotations

from typing import Any

import warmwatch
from warmwatch.frameworks._telling import Phases, guarded, suggest, trains

_UNNAMED = (None, "", "lightning_logs")  # what loggers are called whom nobody gave a name


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
        names = [getattr(logger, "name", None) for logger in trainer.loggers]
        if named := next((name for name in names if name not in _UNNAMED), None):
            suggest(run=str(named))

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
