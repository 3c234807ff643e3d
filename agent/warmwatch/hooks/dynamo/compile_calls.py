"""Calls of ``torch.compile``: that there was one, and with which mode, backend and options.

``torch.compile``, ``nn.Module.compile`` and ``torch.compiler.compile`` all end in
``torch._dynamo.optimize``, which they look up in its module at each call (torch 2.6 to 2.15). They
call it even if ``TORCHDYNAMO_DISABLE`` makes it return its argument. Only the user's calls count.
PyTorch's own (``flex_attention``, higher-order operators) wrap and run immediately, and what a
library decorates at import may never be used: neither was requested.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

from warmwatch.hooks.dynamo.fallbacks import note_limit
from warmwatch.hooks.dynamo.targets import compiled_there, owner_of
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, untraced
from warmwatch.shared.user_code import is_library, of_value
from warmwatch.shared.values import MOST_OPTIONS

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,79}")
_HIDDEN = "..."


def way_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Journal values for one call."""
    backend = args[0] if args else kwargs.get("backend", "inductor")
    dynamic = kwargs.get("dynamic")
    mode, options = _mode_and_options(backend)
    return {
        "mode": mode,
        "backend": _backend(backend),
        "dynamic": dynamic if isinstance(dynamic, bool) else None,
        "fullgraph": kwargs.get("nopython") is True,
        "options": [
            f"{_named(name)}={of_value(value)}"
            for name, value in sorted(options.items(), key=lambda item: str(item[0]))[:MOST_OPTIONS]
        ],
    }


def _mode_and_options(backend: Any) -> tuple[str, Mapping[Any, Any]]:
    settings, given = getattr(backend, "config", None), getattr(backend, "kwargs", None)
    if isinstance(settings, dict):
        mode = _mode_of(settings)
        return mode, {} if mode != "default" else settings
    if isinstance(given, dict):
        options = given.get("options")
        return _named(given.get("mode", "default")), options if isinstance(options, dict) else {}
    return "default", {}


def _mode_of(settings: Mapping[str, Any]) -> str:
    """The mode with exactly these settings."""
    inductor = sys.modules.get("torch._inductor")  # imported, if any of its settings was read
    if not settings or inductor is None or not hasattr(inductor, "list_mode_options"):
        return "default"
    modes = inductor.list_mode_options()
    return next((name for name, sets in modes.items() if sets == settings), "default")


def _backend(backend: Any) -> str:
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", backend)
    return _named(name)


def _named(name: Any) -> str:
    return name if isinstance(name, str) and _NAME.fullmatch(name) else _HIDDEN


# Modules that a call of the user's passes through: our wrappers, torch.compile and its variants.
_ENTRY_POINTS = frozenset(
    {
        __name__,
        "warmwatch.hooks.dynamo.imposed_mode",
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

        original = dynamo.optimize
    replaced = Replaced()

    def report_call(caller: FrameType, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        note_limit()
        compiled = compiled_by(caller)
        compiled_there(compiled, caller)
        if not kwargs.get("disable") and is_by_user(caller):
            way = {**way_of(args, kwargs), **methods_of(compiled, caller), **library_of(caller)}
            listener.post("wrapped", {**way, "trains": trains(compiled)})

    def optimize(*args: Any, **kwargs: Any) -> Any:
        if replaced.listening:
            untraced("hooks.wrappers", report_call, sys._getframe(1), args, kwargs)
        return original(*args, **kwargs)

    replaced.put(dynamo, "optimize", optimize)
    return Installed(uninstall=replaced.undo)


def compiled_by(caller: FrameType | None) -> Any:
    """What ``torch.compile`` was called with; ``None`` if it was not called."""
    while caller is not None and caller.f_globals.get("__name__") in _ENTRY_POINTS:
        if caller.f_code.co_name == "compile" and "model" in caller.f_code.co_varnames:
            return caller.f_locals.get("model")
        caller = caller.f_back
    return None


_MOST_METHODS = 5


def _torch() -> Any:
    """The package, whose function is running."""
    return sys.modules["torch"]


def methods_of(compiled: Any, caller: FrameType | None) -> dict[str, Any]:
    """``methods``: those that a module's own classes define beside ``forward``, by name.

    The object that ``torch.compile`` returns passes them on uncompiled. A method that calls
    ``torch.compile`` itself, as a loader does, is none that each step calls. ``compile()`` of a
    module compiles its call alone, and so not ``forward``.
    """
    module, owner = _torch().nn.Module, owner_of(compiled)
    in_place = owner is not compiled and compiled.__func__ is module._call_impl
    if in_place:
        compiled = owner
    if not isinstance(compiled, module):
        return {}
    own = [
        item for item in type(compiled).__mro__ if not is_library(_file_of(item), item.__module__)
    ]
    running = _running(caller)
    names = dict.fromkeys(
        name
        for item in own
        for name, value in vars(item).items()
        if isinstance(value, FunctionType)
        and not name.startswith("_")
        and name != "forward"
        and value.__code__ not in running
    )
    texts = [name for name in names if not hasattr(module, name)]
    texts = [*texts[: _MOST_METHODS - in_place], *(["forward"] if in_place else [])]
    return {"methods": texts} if texts else {}


def _running(caller: FrameType | None) -> set[CodeType]:
    """The code of ``caller`` and of what called it."""
    result = set()
    while caller is not None:
        result.add(caller.f_code)
        caller = caller.f_back
    return result


def _file_of(owner: type) -> str:
    module = sys.modules.get(owner.__module__)
    return getattr(module, "__file__", None) or ""


def trains(compiled: Any) -> bool:
    """Whether every step calls it: a module in training with parameters to train, or a method of
    one or of an optimizer. When a function is called is unknown."""
    torch, owner = _torch(), owner_of(compiled)
    if isinstance(owner, torch.nn.Module):
        with (
            torch._C.DisableTorchFunction()
        ):  # else a mode of the program sees that an attribute is read
            return owner.training and any(value.requires_grad for value in owner.parameters())
    return isinstance(owner, torch.optim.Optimizer)


def library_of(caller: FrameType | None) -> dict[str, str]:
    """``library``: the package whose function called ``torch.compile``, such as a trainer's."""
    caller = _outside(caller)
    if caller is None or not is_library(caller.f_code.co_filename):
        return {}
    return {"library": _named(str(caller.f_globals.get("__name__")).partition(".")[0])}


def _outside(caller: FrameType | None) -> FrameType | None:
    """The first frame outside the entry points, from ``caller`` on."""
    while caller is not None and caller.f_globals.get("__name__") in _ENTRY_POINTS:
        caller = caller.f_back
    return caller


def is_by_user(caller: FrameType | None) -> bool:
    """Whether the user's program made the call: the first frame outside the entry points."""
    caller = _outside(caller)
    if caller is None or str(caller.f_globals.get("__name__")).startswith("torch."):
        return False
    in_function = caller.f_code.co_flags & inspect.CO_OPTIMIZED
    return bool(in_function) or not any(
        folder in caller.f_code.co_filename for folder in _LIBRARIES
    )
