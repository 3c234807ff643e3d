"""What Dynamo is about to compile, told as it begins.

The event that begins is ``dynamo``, and ``convert_frame._compile`` is where it does (torch 2.6 to
2.15): a few frames above whoever hears it, with the function's code and the compile id among its
arguments. So nothing has to be wrapped, and what is found is what this very call compiles. They
are read at the begin, or before it, when nothing else in that frame could be kept alive.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from warmwatch._hashes import of_code
from warmwatch.hooks.compilations import place

EVENT = "dynamo"
_MODULE, _FUNCTION = "torch._dynamo.convert_frame", "_compile"
_MOST_FRAMES = 24
# What PyTorch puts around a module of its own (``nn.Sequential``): the same code for all of them.
_AROUND = "torch/_dynamo/external_utils.py"


def being_compiled() -> dict[str, Any]:
    """Compile id, name, file, line and code; empty where that is not known."""
    return _identified(*_compiling())


def code_being_compiled() -> CodeType | None:
    """The code that Dynamo compiles on this thread; ``None`` where that is not known."""
    code = _compiling()[0]
    return code if isinstance(code, CodeType) else None


def _compiling() -> tuple[Any, Any]:
    """Code and compile id, as the innermost ``_compile`` on the stack has them."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        is_it = frame.f_code.co_name == _FUNCTION
        if is_it and frame.f_globals.get("__name__") == _MODULE:
            known = frame.f_locals
            return known.get("code"), known.get("compile_id")
        frame = frame.f_back
    return None, None


def _identified(code: Any, compile_id: Any) -> dict[str, Any]:
    if not isinstance(code, CodeType):
        return {}
    known = {"id": None if compile_id is None else str(compile_id)}
    if not code.co_filename.endswith(_AROUND):
        known["code"] = of_code(code)
    return {**known, **place(code.co_name, code.co_filename, code.co_firstlineno)}
