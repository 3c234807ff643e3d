"""torchtitan: ``watch(trainer)``, before ``trainer.train()``.

Under ``warmwatch run`` this happens automatically.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from warmwatch.frameworks._reporting import (
    Phases,
    guarded,
    is_attached,
    mark_steps_by_hand,
    suggest,
)
from warmwatch.lifecycle import api
from warmwatch.shared.run_name import launcher_run

if TYPE_CHECKING:
    from torchtitan.trainer import Trainer

_KEY = "_warmwatch"


def watch(trainer: Trainer) -> None:
    """Attach, and report the trainer's steps, tokens, validations and saves."""
    api.attach()
    _wrap(trainer)


def install() -> None:
    """Watch every ``Trainer`` that begins to train from now on."""
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
    """Wrap the methods of this instance, once; subclasses override those of the class."""
    if hasattr(trainer, _KEY):
        return
    trainer.train_step = _stepping(trainer, trainer.train_step)
    setattr(trainer, _KEY, True)
    # loading a checkpoint calls the optimizers once, before the first step
    mark_steps_by_hand(trainer.optimizers)
    spec = trainer.config.model_spec
    if launcher_run(os.environ) is None:  # a name from the launcher takes precedence
        suggest(run=f"{spec.name}_{spec.flavor}")
    trainer.checkpointer.save = _saving(trainer.checkpointer)
    if (validator := getattr(trainer, "validator", None)) is not None:
        validator.validate = api.evaluating()(validator.validate)


def _stepping(trainer: Any, train_step: Callable[..., Any]) -> Callable[..., Any]:
    """``train_step`` that marks a step, unless it raises because the data ended."""

    @functools.wraps(train_step)
    def stepping(*args: Any, **kwargs: Any) -> Any:
        before = getattr(trainer, "ntokens_seen", 0)
        result = train_step(*args, **kwargs)
        _suggest_work(trainer, before)
        api.step()
        return result

    return stepping


@guarded
def _suggest_work(trainer: Any, before: int) -> None:
    """Set this rank's share; all ranks of a tensor or pipeline group count the same tokens."""
    dims, metrics = trainer.parallel_dims, trainer.metrics_processor
    tokens, rest = divmod(trainer.ntokens_seen - before, dims.tp * dims.pp)
    if tokens <= 0 or rest:
        return
    flops = metrics.num_flops_per_token * tokens
    # no MFU for a quantized model, as in torchtitan: its peak is unknown
    value = flops > 0 and not metrics.has_quantization
    suggest(tokens_per_step=tokens, flops_per_step=flops if value else None)


def _saving(checkpointer: Any) -> Callable[..., Any]:
    """``save`` that reports a save; it is called after every step and rarely saves."""
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
