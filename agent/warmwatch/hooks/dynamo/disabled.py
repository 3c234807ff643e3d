"""Whether compilation is turned off on purpose: by the environment, a stance or a setting.

``TORCHDYNAMO_DISABLE`` makes ``torch.compile`` return its argument.
``torch.compiler.set_stance("force_eager")`` and ``torch._dynamo.config.disable`` (which
``TORCH_COMPILE_DISABLE`` sets) run compiled objects eagerly. None of them has an event, so the
agent checks them rarely; a wrapper reports stances when they are set.

Eager calls are counted where PyTorch decides: with a stance, at each call of a compiled function;
under ``config.disable`` or in a ``TorchDispatchMode``, at a call that fits no compiled entry, in
such a mode also at the first call. PyTorch then skips that function for good, even for compiled
inputs and after the setting is off again (2.15 does so under ``config.disable`` only). Under
``eager_on_recompile`` no Python code sees which calls fit no entry, so all are counted.

In the same place the calls of compiled functions are counted during an evaluation: an evaluation
without any ran uncompiled.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from types import FrameType
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.dynamo.targets import target
from warmwatch.hooks.points import (
    HookPointAbsentError,
    Installed,
    Listener,
    Replaced,
    look_up,
    skip_frames,
    untraced,
)
from warmwatch.shared.fallbacks import DISABLED, MODE

_VARIABLE = "TORCHDYNAMO_DISABLE"
_LOCALS = ("frame", "cache_entry")  # of PyTorch's function that skips a frame
_OF_MODULES, _CALLS = "torch.nn.modules.module", "torch._dynamo.eval_frame"
_SKIPS_ONCE = "apply_to_code"  # its local from 2.15 on: no skip for good in a dispatch mode
_ON_RECOMPILE = ("eager_on_recompile", "fail_on_recompile")


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo import config, convert_frame, decorators, eval_frame

        original = decorators._set_stance
        calls = _CompiledCalls(eval_frame, partial(listener.post, "disabled", {}))
        first_instruction = convert_frame.first_real_inst_idx
        _ = (eval_frame._stance.stance, config.disable)
        decides = inspect.unwrap(convert_frame.CatchErrorsWrapper.__call__).__code__
    if absent := {*_LOCALS, first_instruction.__name__} - {*decides.co_varnames, *decides.co_names}:
        raise HookPointAbsentError(f"CatchErrorsWrapper.__call__: {min(absent)}")
    replaced = Replaced()
    in_mode = None if _SKIPS_ONCE in decides.co_varnames else _dispatch_mode(convert_frame)

    def missed(decides: FrameType) -> None:
        if setting := DISABLED if config.disable else MODE if in_mode and in_mode() else None:
            _skipped(listener, setting, decides)

    # ``CatchErrorsWrapper.__call__`` calls it first, when a call fits no compiled entry. A wrapper
    # of that method itself would stand in every stack that PyTorch logs.
    @functools.wraps(first_instruction)
    def on_miss(code: Any) -> Any:
        if replaced.listening:
            quietly("hooks.disabled", missed, sys._getframe(1))
        return first_instruction(code)

    @functools.wraps(original)
    def set_stance(*args: Any, **kwargs: Any) -> Any:
        before = original(*args, **kwargs)
        if replaced.listening:
            quietly("hooks.disabled", calls.stance_set)
            quietly("hooks.disabled", listener.post, "disabled", {})
        return before

    def uninstall() -> None:
        replaced.undo()
        calls.remove()

    replaced.put_all(
        [
            (decorators, "_set_stance", set_stance),
            (convert_frame, "first_real_inst_idx", on_miss),
        ]
    )
    return Installed(
        uninstall=uninstall,
        disabled=lambda: _disabled_by(config, eval_frame._stance.stance),
        uncompiled=calls.counted,
        compiled_calls=calls.compiled_calls,
    )


def _disabled_by(config: Any, stance: str) -> str:
    """One of ``record.DISABLED``."""
    if os.environ.get(_VARIABLE) == "1":
        return "environment"
    if config.disable:
        return "config"
    return "stance" if stance == "force_eager" else stance if stance in _ON_RECOMPILE else ""


class _CompiledCalls:
    """Counts calls of compiled functions: run compiled, and those that a stance affects.

    PyTorch chooses the function to run in one that it calls each time. The wrapper replaces that
    function only while a stance is set or an evaluation runs, so an ordinary call costs nothing
    more.
    """

    def __init__(self, eval_frame: Any, report: Callable[[], Any]) -> None:
        self._report = report  # the first call of each kind, so that its step is known
        self._module, self._original = eval_frame, eval_frame._callback_from_stance
        self._ours = self._choose
        self._compiled = self._eager = self._refused = self._on_recompile = 0
        self._evaluating = False
        # 2.6 chooses while compiled code runs too, where `fail_on_recompile` refuses any frame that
        # is neither compiled nor skipped. From 2.11 on, Dynamo is off there.
        skip_frames(_CompiledCalls._choose, _CompiledCalls._counting, _CompiledCalls._counted)

    def counted(self) -> tuple[int, int, int]:
        """Calls that a stance ran eagerly, that one refused, and under ``eager_on_recompile``."""
        return self._eager, self._refused, self._on_recompile

    def compiled_calls(self, evaluating: bool) -> int:
        """Calls that ran compiled while they were counted; ``evaluating``: count from now on."""
        self._evaluating = evaluating
        self.stance_set()
        return self._compiled

    def stance_set(self) -> None:
        """A stance was set, or the default was restored."""
        if self._module._stance.stance == "default" and not self._evaluating:
            self.remove()
        elif self._module._callback_from_stance is self._original:
            self._module._callback_from_stance = self._ours

    def remove(self) -> None:
        if self._module._callback_from_stance is self._ours:
            self._module._callback_from_stance = self._original

    def _choose(self, callback: Any) -> Any:
        chosen = self._original(callback)
        if callback in (None, False):
            return chosen
        if chosen is None:
            self._eager += 1
            self._counted(self._eager)
            return chosen
        self._compiled += 1
        if self._module._stance.stance == "fail_on_recompile":
            return self._counting(chosen)
        if self._module._stance.stance == "eager_on_recompile":
            self._on_recompile += 1
            self._counted(self._on_recompile)
        return chosen

    def _counted(self, calls: int) -> None:
        if calls == 1:
            untraced("hooks.disabled", self._report)

    def _counting(self, refuses: Any) -> Any:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            try:
                return refuses(*args, **kwargs)
            except RuntimeError:
                self._refused += 1
                self._counted(self._refused)
                raise

        vars(refuse).update(vars(refuses))  # the backend, by which compiled entries are found
        return refuse


def _dispatch_mode(convert_frame: Any) -> Callable[[], bool] | None:
    """PyTorch's test whether a user's ``TorchDispatchMode`` is active; ``None`` if unknown."""
    if found := getattr(convert_frame, "any_torch_dispatch_mode_on_stack", None):
        return found  # type: ignore[no-any-return]
    older = getattr(convert_frame, "is_in_torch_dispatch_mode", None)
    return older and partial(older, include_infra_modes=False)


def _skipped(listener: Listener, setting: str, decides: FrameType) -> None:
    """A frame with compiled entries got an input that fits none, and PyTorch skips it for good; in
    a dispatch mode also one that was to be compiled for the first time.

    ``decides``: the frame of PyTorch's function that skips it.
    """
    frame: Any
    frame, entry = map(decides.f_locals.get, _LOCALS)
    code = getattr(frame, "f_code", None)
    if code is not None and (entry or (setting == MODE and _is_called(decides))):
        module = frame.f_globals.get("__name__")
        listener.post(
            "fallback", {"setting": setting, **target(code, frame.f_locals, None, module)}
        )


def _is_called(decides: FrameType) -> bool:
    """Whether the frame that PyTorch decides about is what ``torch.compile`` was called with."""
    if decides.f_locals.get("is_skipfile"):
        return False
    caller = decides.f_back
    while caller is not None and caller.f_globals.get("__name__") == _OF_MODULES:
        caller = caller.f_back
    return caller is not None and caller.f_globals.get("__name__") == _CALLS


def present() -> str:
    """The stance in force.

    Raises:
        HookPointAbsentError: this PyTorch has none.
    """
    with look_up():
        from torch._dynamo import eval_frame

        return str(eval_frame._stance.stance)


class EagerStance:
    """The stance ``force_eager``, or another one, in force from now on; only on request.

    The user's own stances win: if one was set meanwhile, ours is not restored over it. A user's
    stance that was set over ours restores ours when it ends, even after a detach. So the object
    that it restores is changed to the stance before ours.

    Raises:
        HookPointAbsentError: this PyTorch has none.
    """

    def __init__(self, stance: str = "force_eager") -> None:
        with look_up():
            import torch

            set_stance, self._module = torch.compiler.set_stance, torch._dynamo.eval_frame
            _ = self._module._stance
        self._over = False
        self._set: Any = set_stance(stance)

    def holds(self) -> bool:
        """Whether it is in force, and no stance of the user is."""
        return not self._over and self._module._stance is self._set.stance

    def restore(self) -> None:
        """Restore the earlier stance, unless the user has set another one since."""
        before = self._set.prev
        if self.holds():
            self._set.__exit__(None, None, None)
        self._over = True
        for field in fields(before):  # a stance over ours may restore it after a detach
            setattr(self._set.stance, field.name, getattr(before, field.name))
