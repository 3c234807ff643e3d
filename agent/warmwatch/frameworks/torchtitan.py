"""torchtitan: ``watch(trainer)``, before ``trainer.train()``.

Under ``warmwatch run`` each ``Trainer`` that trains is watched by itself.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import warmwatch
from warmwatch.frameworks._reporting import (
    Phases,
    guarded,
    is_attached,
    marks_steps,
    suggest,
    trains,
)
from warmwatch.process.run_name import launcher_run

if TYPE_CHECKING:
    from torchtitan.trainer import Trainer

_KEY = "_warmwatch"


def watch(trainer: Trainer) -> None:
    """Attach, and tell of the trainer's own steps and tokens, its validations and its saves."""
    trains()
    _wrap(trainer)


def join() -> None:
    """Have each ``Trainer`` from here on watched when it begins to train."""
    from torchtitan import trainer

    train = trainer.Trainer.train

    @functools.wraps(train)
    def watched(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if is_attached():
            watch(self)
        return train(self, *args, **kwargs)

    trainer.Trainer.train = watched


@guarded
def _wrap(trainer: Any) -> None:
    """Its own methods, as they are called: subclasses have others. Once."""
    if hasattr(trainer, _KEY):
        return
    trainer.train_step = _stepping(trainer, trainer.train_step)
    setattr(trainer, _KEY, True)
    # to load a checkpoint steps the optimizers once, before the first step
    marks_steps(trainer.optimizers)
    spec = trainer.config.model_spec
    if launcher_run(os.environ) is None:  # which a person gave to this one training
        suggest(run=f"{spec.name}_{spec.flavor}")
    trainer.checkpointer.save = _saving(trainer.checkpointer)
    if (validator := getattr(trainer, "validator", None)) is not None:
        validator.validate = warmwatch.evaluating()(validator.validate)


def _stepping(trainer: Any, train_step: Callable[..., Any]) -> Callable[..., Any]:
    """One that ends with an exception is none: there was no more data for it."""

    @functools.wraps(train_step)
    def stepping(*args: Any, **kwargs: Any) -> Any:
        before = getattr(trainer, "ntokens_seen", 0)
        made = train_step(*args, **kwargs)
        _tell_worth(trainer, before)
        warmwatch.step()
        return made

    return stepping


@guarded
def _tell_worth(trainer: Any, before: int) -> None:
    """This rank's share: all ranks of a tensor or pipeline group count the same tokens."""
    dims, metrics = trainer.parallel_dims, trainer.metrics_processor
    tokens, rest = divmod(trainer.ntokens_seen - before, dims.tp * dims.pp)
    if tokens <= 0 or rest:
        return
    flops = metrics.num_flops_per_token * tokens
    # a quantized model is held against no peak: torchtitan gives no MFU for it either
    known = flops > 0 and not metrics.has_quantization
    suggest(tokens_per_step=tokens, flops_per_step=flops if known else None)


def _saving(checkpointer: Any) -> Callable[..., Any]:
    """It is asked at every step, and seldom saves."""
    phases, save = Phases(), checkpointer.save

    @guarded
    def begin(*args: Any, **kwargs: Any) -> None:
        if checkpointer._should_save(*args, **kwargs):
            phases.begin("saving")

    @functools.wraps(save)
    def saving(*args: Any, **kwargs: Any) -> Any:
        begin(*args, **kwargs)
        try:
            return save(*args, **kwargs)
        finally:
            phases.end("saving")

    return saving
