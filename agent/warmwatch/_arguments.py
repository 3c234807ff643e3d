"""What a user gives to ``attach()``, checked at the call and by name.

A value that cannot be taken is refused in the user's terms, and the rest is taken: a training goes
on, with a record, whatever was given. Nothing is read from a tensor, which could wait for a GPU.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from warmwatch._baseline import FEWEST, MOST
from warmwatch._guard import pass_on
from warmwatch.bounds import DTYPES, LARGEST, LARGEST_AMOUNT, TEXT_LIMIT

# why a name is not taken as it is
CHANGED = f"characters that cannot be shown, or more than {TEXT_LIMIT} characters"

AFTER_WARM = ("warn", "raise")

_SIZES = "a whole number from 1 to 2**53"


class _RefusedError(ValueError):
    """The message says what the argument is instead of what it should be."""


def checked(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments that can be taken, as plain Python values, and a sentence for each other."""
    taken: dict[str, Any] = {}
    complaints = []
    for name, value in given.items():
        if value is None:
            continue
        try:
            taken[name] = _CHECKS[name](value)
        except _RefusedError as error:
            complaints.append(f"attach({name}=...) is {error}; it is left out")
    if "run" in taken and taken["run"] != given["run"]:
        complaints.append(f"attach(run=...) holds {CHANGED}; the run is called {taken['run']!r}")
    return taken, tuple(complaints)


def plain_name(name: str) -> str:
    """A name that can be shown anywhere: what cannot be printed becomes ``_``; cut at the limit.

    Path separators stay: no file is called by the name as it is.
    """
    return "".join(one if one.isprintable() else "_" for one in name[:TEXT_LIMIT])


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise _RefusedError(f"{_shown(value)}: pass a str")
    if not value.strip():
        raise _RefusedError("an empty str: pass a name")
    return plain_name(value)


def _size(value: Any) -> int:
    if isinstance(value, bool | str | bytes) or _is_tensor(value):
        raise _RefusedError(f"{_shown(value)}: pass {_SIZES}")
    try:
        size = operator.index(value)
    except Exception as error:  # noqa: BLE001 - a stranger's __index__ may raise anything
        pass_on(error)
        raise _RefusedError(f"{_shown(value)}: pass {_SIZES}") from None
    if not 1 <= size <= LARGEST:
        raise _RefusedError(f"{_shown(size)}: pass {_SIZES}")
    return size


def _steps(value: Any) -> int:
    asked = f"pass a whole number from {FEWEST} to {MOST:,}"
    try:
        steps = _size(value)
    except _RefusedError:
        raise _RefusedError(f"{_shown(value)}: {asked}") from None
    if not FEWEST <= steps <= MOST:
        raise _RefusedError(f"{_shown(steps)}: {asked}")
    return steps


def _amount(value: Any) -> float:
    asked = f"pass a number above 0, up to {LARGEST_AMOUNT:g}"
    if isinstance(value, bool | str | bytes | bytearray) or _is_tensor(value):
        raise _RefusedError(f"{_shown(value)}: {asked}")
    try:
        amount = float(value)
    except Exception as error:  # noqa: BLE001 - a stranger's __float__ may raise anything
        pass_on(error)
        raise _RefusedError(f"{_shown(value)}: {asked}") from None
    if not 0 < amount <= LARGEST_AMOUNT:  # not a number, too
        raise _RefusedError(f"{_shown(amount)}: {asked}")
    return amount


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _RefusedError(f"{_shown(value)}: pass True or False")
    return value


def _after_warm(value: Any) -> str:
    if value not in AFTER_WARM or not isinstance(value, str):
        raise _RefusedError(f"{_shown(value)}: pass 'warn' or 'raise'")
    return value


def _dtype(value: Any) -> str:
    """By name, whether it is PyTorch's own or a text; nothing of PyTorch is imported for it."""
    kind = type(value)
    known = isinstance(value, str) or (kind.__module__, kind.__name__) == ("torch", "dtype")
    name = str(value).removeprefix("torch.") if known else ""
    name = next((one for one in DTYPES if name.startswith(one)), "")  # torch.float8_e4m3fn
    if not name:
        asked = f"pass torch.bfloat16, or a str of {', '.join(DTYPES)}"
        raise _RefusedError(f"{_shown(value)}: {asked}")
    return name


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "run": _name,
    "tokens_per_step": _size,
    "samples_per_step": _size,
    "flops_per_step": _amount,
    "parameters": _size,
    "dtype": _dtype,
    "say": _flag,
    "baseline_steps": _steps,
    "after_warm": _after_warm,
}


def _is_tensor(value: Any) -> bool:
    """Whether it is one of PyTorch's, told without importing PyTorch."""
    kinds = type(value).__mro__
    return any(kind.__module__ == "torch" and kind.__name__ == "Tensor" for kind in kinds)


def _shown(value: Any) -> str:
    """The value for a sentence; of a large or strange one, what it is."""
    if _is_tensor(value):
        return "a torch.Tensor, which is not read (it could wait for the GPU)"
    if type(value) is int and value.bit_length() > 64:
        return f"a whole number of {value.bit_length()} bits"
    if type(value) in (bool, int, float):
        return repr(value)
    if isinstance(value, str):
        return f"the str {value[:40]!r}"
    return f"of type {type(value).__name__}"
