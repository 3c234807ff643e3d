"""Evaluations of plain loops: from ``model.eval()`` to ``model.train()``, or to the next step.

Only ``Module.eval`` is wrapped, which PyTorch calls once for a whole model: what it calls for each
submodule is ``train(False)``. ``Module.train`` is wrapped from there to its next call, so neither
costs anything for a submodule. Dynamo inlines the originals (``_torchdynamo_inline``, as for what
PyTorch wraps itself): graphs, graph breaks and guards stay as they are.

Whether a module is the one that trains is the listener's to decide: a frozen backbone, a teacher
or a discriminator is put into evaluation mode in the middle of a step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up

_INLINED = "_torchdynamo_inline"  # of a function, what Dynamo traces in its place


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo.variables import functions
        from torch.nn import Module

        original = Module.eval
        _ = functions.UserFunctionVariable
    evaluations = _Evaluations(listener, Module)
    evaluations.wrap_eval(original)
    return Installed(uninstall=evaluations.remove)


class _Evaluations:
    """The wrappers of ``module``'s methods."""

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
                    quietly("hooks.evaluations", self._listener.evaluation_ended)
            return original(model, mode)

        setattr(train, _INLINED, original)
        self._train.put(self._module, "train", train)

    def remove(self) -> None:
        self._listening = False
        self._train.undo()
        self._eval.undo()
