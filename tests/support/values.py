"""Frozen values of both kinds, handled alike: the record's dataclasses, the monitor's Structs."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from msgspec import Struct, structs

T = TypeVar("T")


def replace(value: T, /, **changes: Any) -> T:
    """``value`` with some fields changed, as ``copy.replace`` does it from Python 3.13 on."""
    change: Any = structs.replace if isinstance(value, Struct) else dataclasses.replace
    made: T = change(value, **changes)
    return made


def field_names(value: object) -> tuple[str, ...]:
    """The names of its fields, none where it is no such value."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return ()
