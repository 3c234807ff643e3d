"""Frozen values of each kind, handled in one way: NamedTuples, Structs of msgspec, dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from msgspec import Struct, structs

T = TypeVar("T")


def replace(value: T, /, **changes: Any) -> T:
    """``value`` with some fields changed, as ``copy.replace`` does it from Python 3.13 on."""
    if isinstance(value, Struct):
        made: T = structs.replace(value, **changes)
        return made
    fields: Any = value
    if dataclasses.is_dataclass(value):
        return dataclasses.replace(fields, **changes)
    changed: T = fields._replace(**changes)
    return changed


def field_names(value: object) -> tuple[str, ...]:
    """The names of its fields, none where it is no such value."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    return getattr(value, "_fields", ())
