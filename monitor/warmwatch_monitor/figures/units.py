"""Units of figures, and how one type of a figure is copied to another."""

from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

# A number beyond this is damaged: it counts nothing, and no calendar has a day for it.
_LARGEST = 2.0**64


def _unit(name: str) -> Meta:
    return Meta(gt=-_LARGEST, lt=_LARGEST, extra_json_schema={"x-unit": name} if name else None)


Number = Annotated[float, _unit("")]

Seconds = Annotated[float, _unit("s")]

Epoch = Annotated[float, _unit("s since the epoch")]

Joules = Annotated[float, _unit("J")]

LARGEST = 2**63 - 1

Count = Annotated[int, Meta(ge=0, le=LARGEST)]

_Copied = TypeVar("_Copied", bound=Struct)


def total(values: Iterable[float | None]) -> float | None:
    """The sum of the known values; ``None`` if none is known."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def copied(value: Struct, type: type[_Copied], **given: Any) -> _Copied:
    """``value`` as a ``type``: its fields of the same name, and those that are ``given``.

    A field that both types gain needs no line where they meet.
    """
    same = {name: getattr(value, name) for name in _common(value.__class__, type)}
    return type(**{**same, **given})


@cache
def _common(source: type[Struct], target: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in target.__struct_fields__ if name in source.__struct_fields__)
