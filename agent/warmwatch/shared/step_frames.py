"""The frames around a step of an optimizer, at run time and while Dynamo traces them.

PyTorch wraps the ``step`` of every optimizer class in a function. What marks a step is called by
that wrapper, or by code that Dynamo compiled from it and from what called it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

_MODULE = "torch.optim.optimizer"
_RESUMES = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+$")

_on_traced_step: Callable[[Any], None] | None = None


def set_traced_step_hook(hook: Callable[[Any], None] | None) -> None:
    """Call ``hook`` for each step that compiled code contains; ``None``: call nothing."""
    global _on_traced_step
    _on_traced_step = hook


def count_traced_step(optimizer: Any) -> None:
    """Called by the code that Dynamo compiles, after the graph that contains the step."""
    if (hook := _on_traced_step) is not None:
        hook(optimizer)


def wrapper_name(code: CodeType, names: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The name of PyTorch's function around ``step``, and whether ``code`` resumes it.

    ``names``: the globals of ``code``. ``None``: it is the code of another function.
    """
    if names.get("__name__") != _MODULE:
        return None
    resumes = _RESUMES.match(code.co_name)
    return (resumes[1], True) if resumes else (code.co_name, False)


def inside_step() -> bool:
    """Whether the ``step`` that just ended was called by another ``step``.

    PyTorch's function around ``step`` is on the stack once, and twice if this ``step`` is nested.
    For a compiled ``step`` Dynamo makes two frames, one of which resumes the other: these count
    once. Where Dynamo has inlined that function, it is not on the stack for this ``step``.
    """
    frame: FrameType | None = sys._getframe(1)
    around, resumed = None, False
    while frame is not None:
        pair = wrapper_name(frame.f_code, frame.f_globals)
        if pair is not None:
            function, resumes = pair
            if around is None:
                around = function
            elif (function == around or not around) and not resumed:
                return True
            resumed = resumes
        else:
            resumed = False
        caller = frame.f_back
        if frame.f_code is count_traced_step.__code__ and caller is not None:
            inlined = wrapper_name(caller.f_code, caller.f_globals) is None
            around = "" if inlined else None
        frame = caller
    return False
