"""What was handed to ``torch.compile``: asked for, whether it is ever compiled or not.

``torch.compile``, ``nn.Module.compile`` and ``torch.compiler.compile`` all end in
``torch._dynamo.optimize``, found through the module's attribute at each call (torch 2.6 to 2.15),
also where ``TORCHDYNAMO_DISABLE`` makes it give back what it was given. Counted are the user's own
calls. PyTorch's calls of itself (``flex_attention``, higher-order operators) wrap and run at once,
and what a library decorates as its module is imported may never be used: neither was asked for.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

from warmwatch._guard import report
from warmwatch._seams import Installed, Listener, Replaced, look_up
from warmwatch.hooks.ways import way_of

# Through these comes every call: the wrapper around ours, torch.compile and its like.
_DOORS = frozenset(
    {
        __name__,
        "torch",
        "torch._dynamo.eval_frame",
        "torch.compiler",
        "torch.nn.modules.module",
    }
)
_LIBRARIES = ("site-packages", "dist-packages")


def install(listener: Listener) -> Installed:
    with look_up():
        import torch._dynamo as dynamo
        from torch.compiler import disable

        original = dynamo.optimize
    listening = True

    def optimize(*args: Any, **kwargs: Any) -> Any:
        if listening:
            try:
                if not kwargs.get("disable") and is_asked_for(sys._getframe(1)):
                    listener.wrapped(way_of(args, kwargs))
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.wrappers", error)
        return original(*args, **kwargs)

    replaced = Replaced()

    def uninstall() -> None:
        nonlocal listening
        listening = False
        replaced.undo()

    replaced.put(dynamo, "optimize", disable(optimize))
    return Installed(uninstall=uninstall)


def is_asked_for(caller: FrameType | None) -> bool:
    """Whether the first frame behind the doors is the user's program."""
    while caller is not None and caller.f_globals.get("__name__") in _DOORS:
        caller = caller.f_back
    if caller is None:
        return False
    if str(caller.f_globals.get("__name__")).startswith("torch."):
        return False
    in_function = caller.f_code.co_flags & inspect.CO_OPTIMIZED
    return bool(in_function) or not any(
        folder in caller.f_code.co_filename for folder in _LIBRARIES
    )
