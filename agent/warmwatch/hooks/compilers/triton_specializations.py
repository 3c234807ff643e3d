"""What a Triton kernel was compiled or tuned for, and the difference to earlier specializations.
Pure.

The journal gets names of arguments, dtypes, numbers and booleans. Of any other value (a string, a
function) it gets only that the value changed. No value of the user's program is passed to ``repr``:
the ``repr`` of a tensor would wait for the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from warmwatch.hooks.redaction import HIDDEN
from warmwatch.shared.bounded import OfObjects

_TYPE = re.compile(r"[\w*<>\[\](), .:-]{1,80}")
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_MOST_KERNELS = 4096
_MOST_COMPARED = 64  # specializations of a kernel to compare a new one with
_ABSENT = "absent"
_MOST_REPORTED = 8  # differences to report


class Entry(NamedTuple):
    """One thing that a kernel is specialized for.

    ``shown``: text that may be reported. ``identity``: compares it with another. ``about``: the
    category of a change.
    """

    shown: str
    identity: object
    about: str


Specialization = Mapping[str, Entry]


def of_kernel(source: Any, options: Mapping[str, Any] | None) -> dict[str, Entry]:
    """What a kernel is compiled for: an ``ASTSource``'s signature and constants, and options."""
    names = tuple(source.fn.arg_names)
    declared = {item.name for item in getattr(source.fn, "params", ()) if item.is_constexpr}
    entries: dict[str, Entry] = {}
    for name, kind in source.signature.items():
        if kind != "constexpr":
            entries[name] = _type(kind)
    for path, value in source.constants.items():
        name, entry = _named(path, names), _value(value)
        # else it is an integer that is 1 in this call
        is_constant = name.partition("[")[0] in declared
        entries[name] = entry._replace(about="python_value") if is_constant else entry
    for path in _aligned(source.attrs):
        entries[f"alignment of {_named(path, names)}"] = Entry("a multiple of 16", 16, "shape")
    for name in _OPTIONS:
        if options and options.get(name) is not None:
            entries[name] = _value(options[name])._replace(about="python_value")
    return entries


def of_tuning(
    keys: Iterable[str], arguments: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Entry]:
    """What a kernel is tuned for: the arguments in its ``key``, and the dtype of each tensor."""
    entries = {name: _value(arguments[name]) for name in keys if name in arguments}
    for name in names:
        dtype = getattr(arguments.get(name), "dtype", None)
        if dtype is not None:
            entries[f"dtype of {name}"] = _type(str(dtype).removeprefix("torch."))
    return entries


class Memory:
    """The specializations of each kernel in this process."""

    def __init__(self) -> None:
        self._known: OfObjects[list[Specialization]] = OfObjects(_MOST_KERNELS)

    def changed(self, owner: Any, now: Specialization) -> tuple[str, str] | None:
        """Reason and category of a recompile; ``None`` the first time.

        Compares with the earlier specialization that differs least.
        """
        if (before := self._known.get(owner)) is None:
            self._known.set(owner, before := [])
        nearest = min((_difference(entries, now) for entries in before), key=len, default=[])
        before.append(now)
        del before[:-_MOST_COMPARED]
        return (
            _as_reason(nearest) if nearest else None
        )  # else the same specialization, for example for another device


_ORDER = ("dtype", "shape", "python_value")


def _difference(old: Specialization, new: Specialization) -> list[tuple[str, str]]:
    """Category and text of each difference."""
    result = []
    for name in {**old, **new}:
        item, other = old.get(name), new.get(name)
        if (item and item.identity) != (other and other.identity):
            shown = (entry.shown if entry else _ABSENT for entry in (item, other))
            abouts = {entry.about for entry in (item, other) if entry}
            about = next(category for category in _ORDER if category in abouts)
            result.append((about, "{}: expected {}, actual {}".format(name, *shown)))
    return result


def _as_reason(differences: list[tuple[str, str]]) -> tuple[str, str]:
    """The text of a reason, the most specific difference first, and its category."""
    ordered = sorted(differences, key=lambda difference: _ORDER.index(difference[0]))
    return "\n".join(text for _, text in ordered[:_MOST_REPORTED]), ordered[0][0]


def _named(path: Any, names: tuple[str, ...]) -> str:
    """The name of the argument at a path: a name, or positions since 3.3."""
    if isinstance(path, str):
        return path
    first, *rest = path if isinstance(path, tuple) else (path,)
    name = names[first] if isinstance(first, int) and first < len(names) else str(first)
    return name + "".join(f"[{place}]" for place in rest)


def _aligned(attributes: Any) -> Iterable[Any]:
    """Paths of the arguments that are known to be divisible by 16."""
    if isinstance(attributes, Mapping):
        return [path for path, kinds in attributes.items() if "divisibility" in str(kinds)]
    properties = getattr(attributes, "arg_properties", {})  # Triton 3.2
    return list(properties.get("tt.divisibility", ()))


def _type(kind: Any) -> Entry:
    text = str(kind)  # a type's name, or a tuple of type names
    shown = text if _TYPE.fullmatch(text) else HIDDEN
    return Entry(shown, text, "shape" if re.fullmatch(r"[iu]\d+", text) else "dtype")


def _value(value: Any) -> Entry:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, bool | float):
        return Entry(repr(value), (type(value), repr(value)), "python_value")
    if isinstance(value, int):
        return Entry(repr(value), value, "shape")
    if type(value).__name__ == "dtype":
        return _type(str(value).removeprefix("torch."))
    if isinstance(value, tuple):
        parts = [_value(item) for item in value[:16]]
        shown = ", ".join(part.shown for part in parts)
        return Entry(f"({shown})", tuple(part.identity for part in parts), "shape")
    identity = hash(value) if isinstance(value, str) else id(value)
    return Entry(HIDDEN, identity, "python_value")
