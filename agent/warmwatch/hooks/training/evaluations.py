"""Evaluations of plain loops: from ``model.eval()`` to ``model.train()``, or to the next step.

``Module.eval`` and ``Module.train`` are each wrapped once, until the agent is detached. ``eval()``
calls ``train(False)`` of each submodule, and ``train()`` calls itself: its wrapper only reads a
variable unless an evaluation is in progress, which costs 1 to 2 % of the call. Replacing a method
at each evaluation instead would cost more: CPython 3.13 and later cache no attribute of a class
that was modified a thousand times, nor of its subclasses. Another tool that patches the methods for
some time and restores what it found would also stack up our wrappers.

Dynamo inlines the originals (``_torchdynamo_inline``, as for PyTorch's own wrappers): graphs, graph
breaks and guards stay the same.

The listener decides whether the module is the one that trains: ``eval()`` of a frozen backbone
or of a teacher begins no evaluation.
"""

from __future__ import annotations

import functools
from _thread import get_ident
from typing import Any

from warmwatch.hooks.points import (
    INLINED,
    HookPointAbsentError,
    Installed,
    Listener,
    Replaced,
    look_up,
    untraced,
)


def install(listener: Listener) -> Installed:
    with look_up():
        import torch

        module, functions = torch.nn.Module, torch._dynamo.variables.functions
        original_eval, original_train = module.eval, module.train
        traced = functions.UserFunctionVariable.__init__.__code__
    if INLINED not in traced.co_consts:  # Dynamo would trace our wrappers
        raise HookPointAbsentError(INLINED)
    replaced = Replaced()
    thread = 0  # that is in an evaluation

    def ended() -> None:
        nonlocal thread
        if get_ident() == thread:
            thread = 0
            listener.post("pause_ended", {"what": "evaluating", "by_train": True})

    @functools.wraps(original_train)
    def train(model: Any, mode: bool = True) -> Any:
        if thread and mode:
            untraced("hooks.evaluations", ended)
        return original_train(model, mode)

    @functools.wraps(original_eval)
    def eval(model: Any) -> Any:
        nonlocal thread
        done = original_eval(model)
        if replaced.listening and untraced("hooks.evaluations", listener.evaluation_began, model):
            thread = get_ident()
        return done

    def uninstall() -> None:
        nonlocal thread
        thread = 0
        replaced.undo()

    replaced.put_all([(module, "eval", eval), (module, "train", train)])
    return Installed(uninstall=uninstall)
