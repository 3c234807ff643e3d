"""The modules and optimizers with which each compiled entry was made.

Modules of one class share their code, and so its compiled entries: student and teacher, policy and
reference, the blocks of a model. An entry that was made for another one of them cannot explain why
this one compiles. Only weak references are held, and none to a tensor.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from types import CodeType, MethodType
from typing import Any

_MOST_CODES = 4096
_MOST_ENTRIES = 1024  # of one code
# Wrappers of PyTorch around its own modules (``nn.Sequential``): the same code for all of them.
AROUND = "torch/_dynamo/external_utils.py"
Made = dict[str, "weakref.ref[Any]"]


class Instances:
    """The instances of each code: of a class, of a wrapper, or of a function that takes modules."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, tuple[weakref.ref[Any], int]]] = {}
        self._counts: dict[int, int] = {}
        self._made: dict[int, dict[str, Made]] = {}

    def begun(self, code: CodeType, compile_id: str | None, values: Any) -> tuple[int, str, bool]:
        """An entry is being compiled: the number of its module at its first compilation, else 0;
        the class of the module; and whether it was made anew: an earlier one is gone."""
        if compile_id is not None:
            made = self._made.setdefault(id(code), {})
            made.pop(compile_id, None)
            made[compile_id] = {name: weakref.ref(value) for name, value in owners(values).items()}
            _bound(made, _MOST_ENTRIES)
            _bound(self._made, _MOST_CODES)
        owner = module(code, values)
        if owner is None:
            return 0, "", False
        groups = self._known.setdefault(id(code), {})
        seen = groups.get(id(owner))
        if seen is not None and seen[0]() is owner:
            return 0, type(owner).__name__, False
        if compile_id is not None and _is_first(compile_id):  # Dynamo was reset: none counts
            for gone in [key for key, (item, _) in groups.items() if item() is None]:
                del groups[gone]
        anew = any(item() is None for item, _ in groups.values())
        number = self._counts[id(code)] = self._counts.get(id(code), 0) + 1
        groups[id(owner)] = weakref.ref(owner), number
        _bound(groups, _MOST_CODES)
        if len(self._known) > _MOST_CODES:
            oldest = next(iter(self._known))
            del self._known[oldest], self._counts[oldest]
        return number, type(owner).__name__, anew

    def number(self, code: CodeType, values: Any) -> int:
        """The number of the module among those of ``code``, from 1; 0 if it was never compiled."""
        owner = module(code, values)
        seen = self._known.get(id(code), {}).get(id(owner))
        return seen[1] if seen is not None and seen[0]() is owner else 0

    def of_other(self, code: CodeType, compile_id: str, values: Any) -> frozenset[str]:
        """The local variables with another instance than the entry was compiled with."""
        made = self._made.get(id(code), {}).get(compile_id, {})
        now = owners(values)
        return frozenset(name for name, item in made.items() if item() is not now.get(name))


def _is_first(compile_id: str) -> bool:
    """Whether it is the first entry of its code: ``3/0``, or ``3/0_1`` after a restart."""
    return compile_id.rpartition("/")[2].partition("_")[0] == "0"


def _bound(table: dict[Any, Any], most: int) -> None:
    while len(table) > most:
        del table[next(iter(table))]


def owner_of(called: Any) -> Any:
    """The object whose method ``called`` is, else ``called``. Runs no code of either."""
    return called.__self__ if type(called) is MethodType else called


def owners(values: Any) -> dict[str, Any]:
    """The modules and optimizers among local variables, by name.

    What a wrapper calls (``fn``) and its first argument (``args``) count: their code is shared.
    """
    kinds = _kinds()
    if not kinds or not isinstance(values, Mapping):
        return {}
    result = {}
    for name, value in values.items():
        owner = owner_of(value) if name == "fn" else value
        if name == "args" and type(value) is tuple and value:
            owner = value[0]
        if issubclass(type(owner), kinds):
            result[name] = owner
    return result


def module(code: CodeType, values: Any) -> Any:
    """The module or optimizer that runs this code: a method's first argument, or what a wrapper
    calls; of another function, its first argument of that kind."""
    fields = owners(values)
    if code.co_filename.endswith(AROUND):
        return fields.get("fn")
    named = (*code.co_varnames[: code.co_argcount], "args")
    return next((fields[name] for name in named if name in fields), None)


def _kinds() -> tuple[type, ...]:
    modules, optimizers = sys.modules.get("torch.nn"), sys.modules.get("torch.optim")
    classes = getattr(modules, "Module", None), getattr(optimizers, "Optimizer", None)
    return tuple(kind for kind in classes if isinstance(kind, type))


INSTANCES = Instances()
