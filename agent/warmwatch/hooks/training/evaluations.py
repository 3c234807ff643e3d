"""Evaluations of plain loops: from ``model.eval()`` to ``model.train()``, or to the next step.

Only ``Module.eval`` is wrapped, which runs once for a whole model: for each submodule it calls
``train(False)``. ``Module.train`` is wrapped from then to its next call, so submodules cost
nothing. Dynamo inlines the originals (``_torchdynamo_inline``, as for PyTorch's own wrappers):
graphs, graph breaks and guards stay the same.

The listener decides whether the module is the one that trains: ``eval()`` of a frozen backbone
or of a teacher begins no evaluation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import HookPointAbsentError, Installed, Listener, Replaced, look_up

_INLINED = "_torchdynamo_inline"  # attribute with the function that Dynamo traces instead


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo.variables import functions
        from torch.nn import Module

        original = Module.eval
        traced = functions.UserFunctionVariable.__init__.__code__
    if _INLINED not in traced.co_consts:  # Dynamo would trace our wrappers
        raise HookPointAbsentError(_INLINED)
    evaluations = _Evaluations(listener, Module)
    evaluations.wrap_eval(original)
    return Installed(uninstall=evaluations.remove)


class _Evaluations:
    """Wrappers of ``module``'s methods."""

    def __init__(self, listener: Listener, module: Any) -> None:
        self._listener, self._module = listener, module
        self._eval, self._train = Replaced(), Replaced()
        self._listening = True

    def wrap_eval(self, original: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def eval(model: Any) -> Any:
            self._train.undo()
            done = original(model)
            if self._listening and quietly(
                "hooks.evaluations", self._listener.evaluation_began, model
            ):
                quietly("hooks.evaluations", self._await_train)
            return done

        setattr(eval, _INLINED, original)
        self._eval.put(self._module, "eval", eval)

    def _await_train(self) -> None:
        original = self._module.train

        @functools.wraps(original)
        def train(model: Any, mode: bool = True) -> Any:
            if mode:
                self._train.undo()
                if self._listening:
                    quietly("hooks.evaluations", self._listener.pause_ended, "evaluating")
            return original(model, mode)

        setattr(train, _INLINED, original)
        self._train.put(self._module, "train", train)

    def remove(self) -> None:
        self._listening = False
        self._train.undo()
        self._eval.undo()
