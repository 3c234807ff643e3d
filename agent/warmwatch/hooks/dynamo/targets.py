"""The name of what Dynamo compiles, where the code's own name says nothing to a user.

- A module of PyTorch's (``nn.Sequential``) runs in a wrapper, with the same code for all of them.
  Its name is its class, and its place where the user called ``torch.compile``.
- The step of a compiled optimizer compiles PyTorch's wrapper around ``step``, ``step`` itself, and
  the rest of the wrapper.
- Code that a library generates, such as the ``__init__`` of a dataclass, has no file. It belongs to
  a class.
- Compiled autograd compiles the backward of a whole model, as a graph with a generated name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType
from typing import Any

from warmwatch.hooks.dynamo.instances import AROUND, owner_of
from warmwatch.shared.bounded import OfObjects
from warmwatch.shared.phrases import COMPILED_AUTOGRAD, resumed
from warmwatch.shared.user_code import nearest, place

_OPTIMIZERS = "torch.optim"
_GRAPH = "<eval_with_key>"
_LONGEST = 80  # characters of a class's name
_MOST = 4096

_compiled_at: OfObjects[dict[str, Any]] = OfObjects(_MOST)

BACKWARD = {"name": "backward", "file": COMPILED_AUTOGRAD, "line": None}


def compiled_there(compiled: Any, caller: FrameType | None) -> None:
    """Remember where the user passed this module or optimizer, or its method, to ``torch.compile``.

    The last place counts.
    """
    owner = owner_of(compiled)
    if _is_a(owner, "torch.nn", "Module") or _is_a(owner, _OPTIMIZERS, "Optimizer"):
        where = nearest(caller)
        if where is not None:
            _compiled_at.set(owner, {"file": where["file"], "line": where["line"]})


def target(code: CodeType, values: Any, compile_id: Any, module: Any) -> dict[str, Any]:
    """Name, file and line of the function with this ``code`` and these local variables.

    ``module``: the name of its module.
    """
    if code.co_filename.startswith(_GRAPH) and str(compile_id).startswith("!"):
        return dict(BACKWARD)
    if isinstance(values, Mapping):
        if code.co_filename.endswith(AROUND):
            called = values.get("fn")  # not that of ``dont_skip_tracing``, which wraps no model
            fields = _named(code.co_name) if called is None else _wrapped(called)
        elif isinstance(module, str) and module.startswith(_OPTIMIZERS):
            fields = _of_optimizer(code, values)
        elif code.co_filename.startswith("<"):
            fields = _generated(code, values)
        else:
            fields = None
        if fields is not None:
            return fields
    return place(code.co_name, code.co_filename, code.co_firstlineno)


def _wrapped(called: Any) -> dict[str, Any] | None:
    if isinstance(called, FunctionType | BuiltinFunctionType):
        return _named(called.__name__)
    owner = owner_of(called)
    return _named(type(owner).__name__, _compiled_at.get(owner))


def _of_optimizer(code: CodeType, values: Mapping[str, Any]) -> dict[str, Any] | None:
    arguments = values.get("args")
    owner = values.get("self")
    if owner is None and isinstance(arguments, tuple) and arguments:
        owner = arguments[0]
    if not _is_a(owner, _OPTIMIZERS, "Optimizer"):
        return None
    rest = resumed(code.co_name)
    name = rest[0] if rest else code.co_name
    return _named(
        f"{type(owner).__name__}.{'step' if name == 'wrapper' else name}", _compiled_at.get(owner)
    )


def _generated(code: CodeType, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The class whose method this is; ``None`` if it is a plain function."""
    owner = values.get(code.co_varnames[0]) if code.co_argcount else None
    kind = owner if isinstance(owner, type) else type(owner)
    own = next(
        (vars(item)[code.co_name] for item in kind.__mro__ if code.co_name in vars(item)), None
    )
    if getattr(getattr(own, "__func__", own), "__code__", None) is not code:
        return None
    fields = _compiled_at.get(owner) if kind is not owner else None
    if fields is None:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if not isinstance(file, str):
            fields = {"file": code.co_filename, "line": code.co_firstlineno}
        else:
            fields = {"file": file.rpartition("/")[2], "line": None}
    return _named(f"{kind.__name__}.{code.co_name}", fields)


def _named(name: Any, at: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """``None`` if ``name`` is none that a program writes."""
    if not isinstance(name, str) or len(name) > _LONGEST:
        return None
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    return {"name": name, "file": None, "line": None, **(at or {})}


def _is_a(owner: Any, module: str, kind: str) -> bool:
    """Whether ``owner`` is of this class, if its module is imported."""
    item = getattr(sys.modules.get(module), kind, None)
    return isinstance(item, type) and issubclass(type(owner), item)
