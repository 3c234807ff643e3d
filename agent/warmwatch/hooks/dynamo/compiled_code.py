"""What Dynamo compiles at this moment: its function, module, compile id and settings.

PyTorch reports none of this at the begin of a compilation. The local variables of Dynamo's
``_compile``, which is then on the stack, have it (torch 2.6 to 2.15).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from math import prod
from types import CodeType, FrameType
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.points import HookPointAbsentError, Installed, Listener, look_up
from warmwatch.shared.user_code import is_library, nearest, of_code, place

_MODULE, _FUNCTION = "torch._dynamo.convert_frame", "_compile"
_LOCALS = ("code", "compile_id", "one_graph", "locals")
_STATIC, _AUTOMATIC = "assume_static_by_default", "automatic_dynamic_shapes"
_MOST_FRAMES = 24  # of the stack, to look through
_MOST_CODES = 4096  # remembered
# What ``flex_attention`` compiles if it is called uncompiled (torch 2.6 to 2.15).
FLEX, UNFUSED = "torch.nn.attention.flex_attention", "_flex_attention_hop_wrapper"
# Wrappers of PyTorch around its own modules (``nn.Sequential``): the same code for all of them.
_AROUND = "torch/_dynamo/external_utils.py"


def install(listener: Listener) -> Installed:  # noqa: ARG001 - the signature of every install
    """Check that ``_compile`` exists and has the local variables that this file reads."""
    from inspect import unwrap  # here: PyTorch imports it; a process that never compiles need not

    with look_up():
        from torch._dynamo import config, convert_frame

        _ = (getattr(config, _STATIC), getattr(config, _AUTOMATIC))
        known = unwrap(getattr(convert_frame, _FUNCTION)).__code__
    names = {*known.co_varnames, *known.co_cellvars}
    if absent := [name for name in _LOCALS if name not in names]:
        raise HookPointAbsentError(f"{_FUNCTION}: {absent[0]}")
    return Installed()


def being_compiled() -> dict[str, Any]:
    """Compile id, name, file, line and code of the present compilation; empty if unknown.

    ``fullgraph``: a graph break raises. ``instance``: the number of the module, if others with the
    same code were compiled and this one was not. ``caller``: the user's line that called library
    code, such as ``train.py:31``; empty if there is none. ``dynamic``: all sizes are dynamic, or
    none; absent by default, where only changed sizes are. ``again``: it was compiled before, and
    ``torch._dynamo.reset()`` dropped the result. ``unfused``: the user's function and line that
    called ``flex_attention`` uncompiled, and the bytes of its scores.
    """
    try:
        known = _compiling()
        return _identified(known, known.get("code"), known.get("compile_id"))
    except Exception as error:  # noqa: BLE001 - the event is reported without it
        report("hooks.code", error)
        return {}


def code_being_compiled() -> CodeType | None:
    """The code that Dynamo compiles on this thread; ``None`` if unknown."""
    code = _compiling().get("code")
    return code if isinstance(code, CodeType) else None


def _compiling() -> Mapping[str, Any]:
    """The local variables of the innermost ``_compile`` on the stack; empty if there is none."""
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
    was_compiled, digest = _remembered(code)
    if not code.co_filename.endswith(_AROUND):
        known["code"] = digest
    if compiled.get("one_graph") is True:
        known["fullgraph"] = True
    if (dynamic := _dynamic()) is not None:
        known["dynamic"] = dynamic
    if was_compiled and getattr(compile_id, "frame_compile_id", None) == 0:
        known["again"] = True
    if (instance := _instances.number(code, compiled.get("locals"))) > 1:
        known["instance"] = instance
    names = compiled.get("globals")
    module = names.get("__name__") if isinstance(names, dict) else None
    if is_library(code.co_filename, module):
        user = nearest(sys._getframe(1))
        known["caller"] = f"{user['file']}:{user['line']}" if user else ""
        if code.co_name == UNFUSED and module == FLEX:
            known["unfused"] = {**(user or {}), **_scores(compiled.get("locals"))}
    return {**known, **place(code.co_name, code.co_filename, code.co_firstlineno)}


def _scores(values: Any) -> dict[str, int]:
    """Bytes of the scores that unfused ``flex_attention`` materializes for these arguments.

    ``math_attention`` computes them in float32, or in float64 for such queries (torch 2.6 to 2.15).
    Empty if the sizes are unknown.
    """
    try:
        query, key = values["args"][:2]
        batch, heads, length, _ = query.shape
        sizes = batch, heads, length, key.shape[-2], max(4, query.dtype.itemsize)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        return {}  # RuntimeError: a nested tensor has no shape
    # arithmetic with symbols would add guards
    return {"score_bytes": prod(sizes)} if all(type(one) is int for one in sizes) else {}


def _dynamic() -> bool | None:
    """Whether all sizes are dynamic in this compilation, or none; ``None``: only changed sizes.

    ``torch.compile(dynamic=...)`` sets these settings while it compiles (torch 2.6 to 2.15).
    """
    config = sys.modules.get("torch._dynamo.config")
    if getattr(config, _STATIC, True) is False:
        return True
    return False if getattr(config, _AUTOMATIC, True) is False else None


# Compiled entries live as long as the code object, so only a reset brings back a first id.
_compiled: dict[int, tuple[weakref.ref[CodeType], str]] = {}  # with its hash


def _remembered(code: CodeType) -> tuple[bool, str]:
    """Whether Dynamo compiled this code object before, and its hash. Remembers it."""
    before, digest = _compiled.pop(id(code), (None, ""))
    known = before is not None and before() is code
    digest = digest if known else of_code(code)
    _compiled[id(code)] = weakref.ref(code), digest
    if len(_compiled) > _MOST_CODES:
        del _compiled[next(iter(_compiled))]
    return known, digest


class _Instances:
    """The modules compiled with each code: the code of a class, or of a wrapper."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, weakref.ref[Any]]] = {}
        self._counts: dict[int, int] = {}

    def number(self, code: CodeType, values: Any) -> int:
        """The number of this module of ``code``, from 1, at its first compilation; else 0."""
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
    """The module that runs this code: a method's first argument, or what a wrapper calls."""
    if not isinstance(values, Mapping):
        return None
    if code.co_filename.endswith(_AROUND):
        called = values.get("fn")
        called = getattr(called, "__self__", called)
    else:
        called = values.get(code.co_varnames[0]) if code.co_argcount else None
    module = sys.modules.get("torch.nn")
    return called if module is not None and isinstance(called, module.Module) else None


class Compiling:
    """What each thread compiles with Dynamo, as far as it is known at the begin.

    Listeners join it with PyTorch's compilation record, so that all of them count alike.
    """

    def __init__(self) -> None:
        self._begun: dict[int, Mapping[str, Any]] = {}
        self._reasons: dict[int, dict[str, str]] = {}
        self._codes: dict[str, str] = {}  # by compile id

    def begun(self, thread: int, of: Mapping[str, Any]) -> None:
        self._begun[thread] = of
        self._reasons.pop(thread, None)
        if of["id"] is not None and "code" in of:
            self._codes.pop(of["id"], None)  # ids restart after a reset: the latest must come last
            self._codes[of["id"]] = of["code"]
            if len(self._codes) > _MOST_CODES:
                self._codes.pop(next(iter(self._codes)), None)

    def code(self, compile_id: Any) -> str | None:
        """The code of the function that was last compiled with this id.

        Of a backward, PyTorch reports only the id.
        """
        return self._codes.get(compile_id)

    def recompile(self, thread: int, why: dict[str, str]) -> bool:
        """Whether what ``thread`` compiles now is a recompile for ``why``.

        The first compilation of another module of the same class is not: nothing has changed.
        """
        if "instance" in self._begun.get(thread, {}):
            return False
        self._reasons[thread] = why
        return True

    def circumstances(self, thread: int) -> dict[str, Any]:
        """``caller``, ``dynamic`` and ``again`` of what ``thread`` compiles, where known."""
        begun = self._begun.get(thread, {})
        return {key: begun[key] for key in ("caller", "dynamic", "again") if key in begun}

    def ended(self, thread: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """``values`` of a forward compilation that ended, with what is known since its begin.

        The reasons reported at the begin replace the single one in PyTorch's record.
        """
        ended = dict(values)
        ended.update(self.circumstances(thread))
        reasons, begun = self._reasons.pop(thread, None), self._begun.pop(thread, {})
        left = ended.pop("left", None)
        if left is not None and begun.get("fullgraph"):
            ended["failure"] = left  # it has raised
            if reasons is None and "reason" not in ended:
                ended.pop("category", None)  # nothing was compiled before
        else:
            ended.pop("failure_reason", None)
        if "category" in ended and "instance" in begun:
            ended.pop("category")
            ended.pop("reason", None)
            ended["instance"] = begun["instance"]
        elif "category" in ended and reasons is not None:
            ended.update(reasons)
        return ended
