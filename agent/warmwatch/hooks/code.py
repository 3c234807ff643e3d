"""What Dynamo is about to compile, told as it begins.

The event that begins is ``dynamo``, and ``convert_frame._compile`` is where it does (torch 2.6 to
2.15): a few frames above whoever hears it, with the function's code and the compile id among its
arguments. So nothing has to be wrapped, and what is found is what this very call compiles. They
are read at the begin, or before it, when nothing else in that frame could be kept alive.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any

from warmwatch._hashes import of_code
from warmwatch._seams import Installed, Listener, SeamAbsentError, look_up
from warmwatch.hooks.compilations import place

EVENT = "dynamo"
_MODULE, _FUNCTION = "torch._dynamo.convert_frame", "_compile"
_LOCALS = ("code", "compile_id", "one_graph", "locals")
_MOST_FRAMES = 24
# What PyTorch puts around a module of its own (``nn.Sequential``): the same code for all of them.
_AROUND = "torch/_dynamo/external_utils.py"


_MOST_CODES = 4096


def require(listener: Listener) -> Installed:  # noqa: ARG001 - every seam's signature
    """``_compile`` is there and has the locals that are read."""
    with look_up():
        from torch._dynamo import convert_frame

        known = inspect.unwrap(getattr(convert_frame, _FUNCTION)).__code__
    names = {*known.co_varnames, *known.co_cellvars}
    if absent := [name for name in _LOCALS if name not in names]:
        raise SeamAbsentError(f"{_FUNCTION}: {absent[0]}")
    return Installed()


def being_compiled() -> dict[str, Any]:
    """Compile id, name, file, line and code; empty where that is not known.

    ``fullgraph``: a graph break raises. ``instance``: which module of this code it is, where
    others were compiled with the same code and this one never was.
    """
    known = _compiling()
    return _identified(known, known.get("code"), known.get("compile_id"))


def code_being_compiled() -> CodeType | None:
    """The code that Dynamo compiles on this thread; ``None`` where that is not known."""
    code = _compiling().get("code")
    return code if isinstance(code, CodeType) else None


def _compiling() -> Mapping[str, Any]:
    """The variables of the innermost ``_compile`` on the stack; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        is_it = frame.f_code.co_name == _FUNCTION
        if is_it and frame.f_globals.get("__name__") == _MODULE:
            return frame.f_locals
        frame = frame.f_back
    return {}


def _identified(compiled: Mapping[str, Any], code: Any, compile_id: Any) -> dict[str, Any]:
    if not isinstance(code, CodeType):
        return {}
    known: dict[str, Any] = {"id": None if compile_id is None else str(compile_id)}
    if not code.co_filename.endswith(_AROUND):
        known["code"] = of_code(code)
    if compiled.get("one_graph") is True:
        known["fullgraph"] = True
    if (instance := _instances.number(code, compiled.get("locals"))) > 1:
        known["instance"] = instance
    return {**known, **place(code.co_name, code.co_filename, code.co_firstlineno)}


class _Instances:
    """Which modules were compiled with which code: each keeps its own class's, or a wrapper's."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, weakref.ref[Any]]] = {}
        self._counts: dict[int, int] = {}

    def number(self, code: CodeType, values: Any) -> int:
        """Which module of ``code`` this is if it is compiled for the first time, from 1; else 0."""
        module = _module(code, values)
        if module is None:
            return 0
        known = self._known.setdefault(id(code), {})
        if (seen := known.get(id(module))) is not None and seen() is module:
            return 0
        known[id(module)] = weakref.ref(module)
        self._counts[id(code)] = self._counts.get(id(code), 0) + 1
        number = self._counts[id(code)]
        if len(known) > _MOST_CODES:
            del known[next(iter(known))]
        if len(self._known) > _MOST_CODES:
            oldest = next(iter(self._known))
            del self._known[oldest], self._counts[oldest]
        return number


_instances = _Instances()


def _module(code: CodeType, values: Any) -> Any:
    """The module whose code it is: the first argument of a method, or what a wrapper calls."""
    if not isinstance(values, Mapping):
        return None
    if code.co_filename.endswith(_AROUND):
        called = values.get("fn")
        called = getattr(called, "__self__", called)
    else:
        called = values.get(code.co_varnames[0]) if code.co_argcount else None
    module = sys.modules.get("torch.nn")
    return called if module is not None and isinstance(called, module.Module) else None
