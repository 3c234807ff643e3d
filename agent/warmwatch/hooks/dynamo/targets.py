"""The name of what Dynamo compiles, where the code's own name says nothing to a user.

- A module of PyTorch's (``nn.Sequential``) runs in a wrapper, with the same code for all of them.
  Its name is its class, and its place where the user called ``torch.compile``.
- The step of a compiled optimizer compiles PyTorch's wrapper around ``step``, ``step`` itself, and
  the rest of the wrapper.
- Code that a library generates, such as the ``__init__`` of a dataclass, has no file. It belongs to
  a class.
- Compiled autograd compiles the backward of a whole model, as a graph with a generated name.

The modules and optimizers with which each compiled entry was made are known by weak references.
Modules of one class share their code, and so its compiled entries: student and teacher, policy and
reference, the blocks of a model. So do functions that one wrapper calls: PyTorch's around
``torch.compile(F.relu)`` and partial functions, ``torch.func.vmap``, a decorator of the user's. An
entry that was made for another one of them cannot explain why this one compiles. No reference is
held to a tensor.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from warmwatch.shared.bounded import OfObjects
from warmwatch.shared.phrases import COMPILED_AUTOGRAD, resumed
from warmwatch.shared.user_code import is_library, nearest, place
from warmwatch.shared.values import FUNCTION

_MOST_CODES = 4096
_MOST_ENTRIES = 1024  # of one code
# Wrappers of PyTorch around its own modules (``nn.Sequential``): the same code for all of them.
AROUND = "torch/_dynamo/external_utils.py"
Made = dict[str, tuple["weakref.ref[Any]", int]]


class _Owner(NamedTuple):
    """A module, an optimizer, or what a wrapper calls: the code of a function, however often it is
    defined. ``cell``: the id of a function's variable in the closure, else 0: another value of the
    same variable is no other function.
    """

    value: Any
    cell: int = 0

    @property
    def kind(self) -> str:
        is_function = isinstance(self.value, CodeType | BuiltinFunctionType)
        return FUNCTION if is_function else type(self.value).__name__


class Instances:
    """The instances of each code: of a class, of a wrapper, or of a function that takes modules."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, tuple[weakref.ref[Any], int, str]]] = {}
        self._counts: dict[int, int] = {}
        self._made: dict[int, dict[str, Made]] = {}

    def begun(
        self, code: CodeType, compile_id: str | None, values: Any, closure: Any = ()
    ) -> tuple[int, str, bool]:
        """An entry is being compiled: the number of its module at its first compilation, else 0;
        the class of the module; and whether it was made anew: an earlier one is gone."""
        fields = owners(code, values, closure)
        # then Dynamo was reset, if it compiled before: no earlier entry counts
        is_first = compile_id is not None and _is_first(compile_id)
        if compile_id is not None:
            made = self._made.setdefault(id(code), {})
            if is_first:
                made.clear()
            made.pop(compile_id, None)
            made[compile_id] = {
                name: (weakref.ref(value), cell) for name, (value, cell) in fields.items()
            }
            _bound(made, _MOST_ENTRIES)
            _bound(self._made, _MOST_CODES)
        owners_of_call = _of_call(code, fields)
        if not owners_of_call:
            return 0, "", False
        groups = self._known.setdefault(id(code), {})
        new = [owner for owner in owners_of_call if not _is_in(groups, owner.value)]
        kind = next(iter(new or owners_of_call)).kind
        if not new:
            return 0, kind, False
        if is_first:
            for gone in [key for key, (item, *_) in groups.items() if item() is None]:
                del groups[gone]
        anew = any(item() is None and of == kind for item, _, of in groups.values())
        number = self._counts[id(code)] = self._counts.get(id(code), 0) + 1
        for owner in new:
            groups[id(owner.value)] = weakref.ref(owner.value), number, owner.kind
        _bound(groups, _MOST_CODES)
        if len(self._known) > _MOST_CODES:
            oldest = next(iter(self._known))
            del self._known[oldest], self._counts[oldest]
        return number, kind, anew

    def called_by(self, code: CodeType) -> int:
        """How many functions a wrapper called, and modules, if it is PyTorch's; 0 if it is none."""
        entries = list(self._made.get(id(code), {}).values())
        if not _is_around(code):
            entries = [made for made in entries if all(cell for _, cell in made.values())]
        called = {
            tuple(id(item) for name, (item, cell) in made.items() if cell or name == "fn")
            for made in entries
        }
        return len(called - {()})

    def of_other(
        self, code: CodeType, compile_id: str, now: Mapping[str, _Owner]
    ) -> frozenset[str]:
        """The local variables with another instance than the entry was compiled with.

        ``now``: as ``owners`` returns them.
        """
        made = self._made.get(id(code), {}).get(compile_id, {})
        return frozenset(
            name for name, (item, cell) in made.items() if _differs(item(), cell, now.get(name))
        )


def _is_in(groups: Mapping[int, tuple[weakref.ref[Any], int, str]], owner: Any) -> bool:
    seen = groups.get(id(owner))
    return seen is not None and seen[0]() is owner


def _differs(value: Any, cell: int, now: _Owner | None) -> bool:
    return now is None or (value is not now.value and (not cell or cell != now.cell))


def _is_first(compile_id: str) -> bool:
    """Whether it is the first entry of its code: ``3/0``, or ``3/0_1`` after a restart."""
    return compile_id.rpartition("/")[2].partition("_")[0] == "0"


def _bound(table: dict[Any, Any], most: int) -> None:
    while len(table) > most:
        del table[next(iter(table))]


def owner_of(called: Any) -> Any:
    """The object whose method ``called`` is, else ``called``. Runs no code of either."""
    return called.__self__ if type(called) is MethodType else called


def owners(code: CodeType, values: Any, closure: Any) -> dict[str, _Owner]:
    """The modules and optimizers among local variables, and the functions that its closure holds,
    by name.

    A wrapper's first argument (``args``) counts, and whatever PyTorch's own (``fn``) calls.
    """
    kinds = _kinds()
    if not kinds or not isinstance(values, Mapping):
        return {}
    result, of_pytorch = {}, _is_around(code)
    cells = dict(zip(code.co_freevars, map(id, closure), strict=False))
    for name, value in values.items():
        owner = owner_of(_innermost(value)) if name in cells else value
        if name == "args" and type(value) is tuple and value:
            owner = value[0]
        if not type(owner).__weakrefoffset__:
            continue
        if issubclass(type(owner), kinds):
            result[name] = _Owner(owner)
        elif name in cells and isinstance(owner, FunctionType):
            result[name] = _Owner(owner.__code__, cells[name])
        elif name in cells and (isinstance(owner, BuiltinFunctionType) or of_pytorch):
            result[name] = _Owner(owner, cells[name])
    return result


def _is_around(code: CodeType) -> bool:
    return code.co_filename.endswith(AROUND)


def _of_call(code: CodeType, fields: Mapping[str, _Owner]) -> list[_Owner]:
    """The module or optimizer that runs this code: a method's first argument, or what a wrapper
    calls; of another function, its first argument of that kind. Then the functions in its closure,
    such as what a decorator of several methods calls."""
    if _is_around(code):
        return [fields["fn"]] if "fn" in fields else []
    named = (*code.co_varnames[: code.co_argcount], "args", *code.co_freevars)
    found = [fields[name] for name in named if name in fields]
    modules = [owner for owner in found if not owner.cell]
    return [*modules[:1], *(owner for owner in found if owner.cell)]


def _kinds() -> tuple[type, ...]:
    modules, optimizers = sys.modules.get("torch.nn"), sys.modules.get("torch.optim")
    classes = getattr(modules, "Module", None), getattr(optimizers, "Optimizer", None)
    return tuple(kind for kind in classes if isinstance(kind, type))


INSTANCES = Instances()


_OPTIMIZERS = "torch.optim"
_TRANSFORMS = "torch._functorch"
_MOST_WRAPPERS = 8
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
        if _is_around(code):
            called = values.get("fn")  # not that of ``dont_skip_tracing``, which wraps no model
            fields = _named(code.co_name) if called is None else _wrapped(called)
        elif isinstance(module, str) and module.startswith(_OPTIMIZERS):
            fields = _of_optimizer(code, values)
        elif isinstance(module, str) and module.startswith(_TRANSFORMS):
            fields = _transformed(values.get("func"))
        elif code.co_filename.startswith("<"):
            fields = _generated(code, values)
        else:
            fields = None
        if fields is not None:
            return fields
    return place(code.co_name, code.co_filename, code.co_firstlineno)


def _wrapped(called: Any) -> dict[str, Any] | None:
    called = _innermost(called)
    if isinstance(called, FunctionType) and not is_library(called.__code__.co_filename):
        code = called.__code__
        return place(called.__name__, code.co_filename, code.co_firstlineno)
    if isinstance(called, FunctionType | BuiltinFunctionType):
        return _named(called.__name__)
    owner = owner_of(called)
    return _named(type(owner).__name__, _compiled_at.get(owner))


def _innermost(called: Any) -> Any:
    """What a partial function, or one that ``functools.wraps`` made, calls in the end."""
    for _ in range(_MOST_WRAPPERS):
        if type(called) is partial:
            called = called.func
        elif isinstance(called, FunctionType) and "__wrapped__" in vars(called):
            called = vars(called)["__wrapped__"]
        else:
            break
    return called


def wrapped_by(code: CodeType, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """The variable of a wrapper of PyTorch's with what it calls, and the name of that."""
    if _is_around(code) and "fn" in values:
        called, variable = _innermost(values["fn"]), "fn"
    elif _is_a(owner := _first(values), _OPTIMIZERS, "Optimizer"):
        called, variable = owner, "args[0]"
    else:
        return None
    is_function = isinstance(called, FunctionType | BuiltinFunctionType)
    name = called.__name__.strip("<>") if is_function else type(owner_of(called)).__name__
    return (variable, name) if len(name) <= _LONGEST and name.isidentifier() else None


def _first(values: Mapping[str, Any]) -> Any:
    """The first argument of a wrapper."""
    arguments = values.get("args")
    return arguments[0] if isinstance(arguments, tuple) and arguments else None


def _transformed(called: Any) -> dict[str, Any] | None:
    """The user's function that a transform, such as ``vmap``, calls."""
    fields = _wrapped(called) if isinstance(called, FunctionType) else None
    return fields if fields and fields["file"] else None


def _of_optimizer(code: CodeType, values: Mapping[str, Any]) -> dict[str, Any] | None:
    owner = values.get("self")
    if owner is None:
        owner = _first(values)
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
