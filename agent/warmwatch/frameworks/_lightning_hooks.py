"""The callbacks of Lightning, common to its packages ``lightning`` and ``pytorch_lightning``."""

from __future__ import annotations

from typing import Any

from warmwatch.frameworks._reporting import Phases, guarded, suggest
from warmwatch.lifecycle import api

_UNNAMED = (None, "", "lightning_logs")  # default names of loggers
# Loggers with the same name in every rank; others get it from a server, in the first rank only.
_SAME_IN_ALL_RANKS = frozenset({"TensorBoardLogger", "CSVLogger", "WandbLogger"})


class Hooks:
    """The hooks of ``WarmwatchCallback``. Of several in one trainer the first marks the steps."""

    def __init__(self) -> None:
        super().__init__()
        api.attach()
        self._phases = Phases()
        self._step = 0

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self._step = trainer.global_step
        if named := _name_of(trainer):
            suggest(run=named)

    @guarded
    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Mark a step, unless the batch only accumulated gradients."""
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if next(callback for callback in trainer.callbacks if isinstance(callback, Hooks)) is self:
            api.step()

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
    """The run's name from a logger; all ranks must get the same."""
    alone = trainer.world_size == 1
    loggers = (
        value for value in trainer.loggers if alone or type(value).__name__ in _SAME_IN_ALL_RANKS
    )
    names = (getattr(logger, "name", None) for logger in loggers)
    return next((str(name) for name in names if name not in _UNNAMED), None)


class FabricHooks:
    """Hooks of ``fabric.call("on_validation_start")`` etc.; optimizers mark the steps."""

    def __init__(self) -> None:
        api.attach()
        self._phases = Phases()

    @guarded
    def on_validation_start(self, *_: Any, **__: Any) -> None:
        self._phases.begin("evaluating")

    @guarded
    def on_validation_end(self, *_: Any, **__: Any) -> None:
        self._phases.end("evaluating")

    on_test_start = on_validation_start
    on_test_end = on_validation_end
