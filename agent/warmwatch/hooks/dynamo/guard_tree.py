"""Which inputs of a frame a compiled entry's guards reject, from Dynamo's guard tree.

PyTorch names the first guard of an entry that failed. Whether the entry differs in something else
too shows only in the others: an entry of another module may fail at a changed size as well. This
module evaluates the leaf guards below each local and global variable. PyTorch evaluates the same
ones at every call, and they change nothing. It leaves out guards with state (aliasing, symbolic
sizes) and those that run Python code of the user. A part of the tree that it cannot read counts as
not rejected.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Any

_MOST_LEAVES = 20_000  # of one recompile; each takes a microsecond or two
# Stateless guards in C++ (torch 2.6 to 2.15). A name that a version lacks does no harm.
_STATELESS = frozenset(
    {
        *("TYPE_MATCH", "ID_MATCH", "EQUALS_MATCH", "TENSOR_MATCH", "LENGTH_CHECK", "DICT_LENGTH"),
        *("NONE_MATCH", "NOT_NONE", "TRUE_MATCH", "FALSE_MATCH", "DICT_CONTAINS", "SET_CONTAINS"),
        *("NO_HASATTR", "RANGE_ITERATOR_MATCH", "TUPLE_ITERATOR_LEN", "MAPPING_KEYS_MATCH"),
        *("DISPATCH_KEY_SET_MATCH", "FLOAT_IS_NAN", "COMPLEX_IS_NAN"),
    }
)
_KEY = re.compile(r"\((?:key=)?(?:'([^'\\]+)'|\"([^\"\\]+)\"|(\d+)|(\w+)\))")
_CONTAINERS: dict[str, Any] = {
    "DictGetItemGuardAccessor": dict,
    "ListGetItemGuardAccessor": list,
    "TupleGetItemGuardAccessor": tuple,
}
_UNKNOWN = object()


class _Absent(Exception):  # noqa: N818 - the guard fails, nothing is wrong
    """What the guard looks up does not exist."""


class TooManyLeavesError(Exception):
    """The trees of this recompile are too large to be read."""


class Reader:
    """Reads the entries of one recompile, up to a number of guards for all of them."""

    def __init__(self, local: Mapping[str, Any], names: Mapping[str, Any]) -> None:
        self._local, self._global, self._left = local, names, _MOST_LEAVES

    def rejected(self, entry: Any) -> frozenset[str] | None:
        """The local variables, and the global ones as ``G.name``, that the entry rejects.

        ``None`` if its tree is gone or too large.
        """
        root = getattr(getattr(entry, "guard_manager", None), "root", None)
        if root is None or self._left <= 0:
            return None
        try:
            return frozenset(self._rejected(root))
        except TooManyLeavesError:
            return None

    def _rejected(self, root: Any) -> set[str]:
        result = set()
        for accessor, child in _children(root):
            kind, key = _accessor(accessor)
            if kind == "GlobalsGuardAccessor":
                for inner, of_global in _children(child):
                    name = _accessor(inner)[1]
                    if name in self._global and not self._holds(of_global, self._global[name]):
                        result.add(f"G.{name}")
            elif key in self._local and not self._holds(child, self._local[key]):
                result.add(str(key))
        return result

    def _holds(self, manager: Any, value: Any) -> bool:
        """Whether the guards below ``manager`` accept ``value``, as far as they can be read."""
        for leaf in manager.get_leaf_guards():
            if type(leaf).__name__ in _STATELESS:
                self._left -= 1
                if self._left < 0:
                    raise TooManyLeavesError
                if not leaf(value):
                    return False
        if hasattr(manager, "get_key_value_managers") and not self._items_hold(manager, value):
            return False
        for accessor, child in _children(manager):
            try:
                inner = _step(accessor, value)
            except _Absent:
                return False
            if inner is not _UNKNOWN and not self._holds(child, inner):
                return False
        return True

    def _items_hold(self, manager: Any, value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        items = list(dict.items(value))
        for index, (of_key, of_value) in manager.get_key_value_managers().items():
            if index >= len(items):
                return False
            key, inner = items[index]
            if of_key is not None and not self._holds(of_key, key):
                return False
            if of_value is not None and not self._holds(of_value, inner):
                return False
        return True


def _children(manager: Any) -> zip[tuple[Any, Any]]:
    return zip(manager.get_accessors(), manager.get_child_managers(), strict=True)


def _accessor(accessor: Any) -> tuple[str, Any]:
    """Its kind, and the key, index or attribute that it looks up, if it has one."""
    match = _KEY.search(accessor.repr())
    key: Any = None
    if match is not None:
        key = int(match[3]) if match[3] else match[1] or match[2] or match[4]
    return type(accessor).__name__, key


def _step(accessor: Any, value: Any) -> Any:
    """What the accessor looks up in ``value``, without running code of the user."""
    kind, key = _accessor(accessor)
    if kind == "GetGenericDictGuardAccessor":
        return _attributes(value)
    if kind == "TypeGuardAccessor":
        return type(value)
    if kind in ("GetAttrGuardAccessor", "GenericGetAttrGuardAccessor"):
        return own_attribute(value, key)
    if kind == "CodeGuardAccessor":
        return value.__code__ if isinstance(value, types.FunctionType) else _UNKNOWN
    container = _CONTAINERS.get(kind)
    if container is None or key is None:
        return _UNKNOWN
    if not isinstance(value, container):
        raise _Absent
    try:
        return container.__getitem__(value, key)
    except (KeyError, IndexError):
        raise _Absent from None


def _attributes(value: Any) -> Any:
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return _UNKNOWN


def own_attribute(value: Any, name: Any) -> Any:
    """An attribute of the object itself; not those that a class, a property or code provides."""
    own = _attributes(value)
    return own.get(name, _UNKNOWN) if isinstance(own, dict) else _UNKNOWN
