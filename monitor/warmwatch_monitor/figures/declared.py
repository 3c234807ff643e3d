"""How a figure is declared: once, at its field, with its text below it.

From the declaration come its key in ``/status`` and the JSON Schema (``status/schema``), its metric
family with the same text (``metrics``), how it is read from a slot (``pipeline``) and from the
samples of a Prometheus (``fleet``), and its lines in the reference.

Python drops the texts below fields and constants, so the source is parsed.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct


class Figure(Struct, frozen=True, kw_only=True):
    """A figure, apart from its value and the text below its field.

    Attributes:
        metric: name of its family, without ``warmwatch_``; "" for none.
        label, values: label of that family and its closed list, for a value by name; for a text,
        1 for the value that holds and 0 for the others.
        counter: field of the compile block that it is read from; "" where it takes more than that.
        needs: hook points of the agent without which it has no value.
        text: of a type that several fields share.
        type: of its value.
    """

    metric: str = ""
    label: str = ""
    values: Sequence[str] = ()
    counter: str = ""
    needs: Sequence[str] = ()
    text: str = ""
    type: Any = None

    @property
    def one_of(self) -> bool:
        """Whether its value is one name of a closed list."""
        return isinstance(self.type, type) and issubclass(self.type, str)


def figure(metric: str = "", **rest: Any) -> Meta:
    """The declaration of a figure, to annotate its type with; ``rest``: fields of ``Figure``."""
    made = Figure(metric=metric, **rest)
    return Meta(description=made.text or None, extra={"figure": made})


@cache
def figures(struct: type[Struct]) -> Mapping[str, Figure]:
    """The figures among the fields of ``struct``, by field."""
    hints = get_type_hints(struct, include_extras=True)
    figures = {name: of_type(hints[name]) for name in struct.__struct_fields__}
    return {name: figure for name, figure in figures.items() if figure is not None}


def of_type(annotated: Any) -> Figure | None:
    """The figure that a type declares."""
    for meta in getattr(annotated, "__metadata__", ()):
        if isinstance(meta, Meta) and meta.extra:
            made: Figure = meta.extra["figure"]
            return Figure(
                metric=made.metric,
                label=made.label,
                values=made.values,
                counter=made.counter,
                needs=made.needs,
                text=made.text,
                type=_bare(annotated),
            )
    return None


def _bare(annotated: Any) -> Any:
    """A type without its annotations and ``None``."""
    if get_origin(annotated) is Annotated:
        return _bare(get_args(annotated)[0])
    if get_origin(annotated) in (Union, UnionType):
        return _bare(next(value for value in get_args(annotated) if value is not NoneType))
    return annotated


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


class Kind(str, Enum):
    """What a clause is about, the most important first; equal ones stay in input order."""

    STATE = "state"  # how the sentence begins
    LOSS = "loss"  # lost ranks, a collective near its timeout
    WAIT = "wait"  # what the run waits for, and how long; its speed
    REASON = "reason"  # why it is in this state
    ATTENTION = "attention"  # a condition that needs attention
    NOTE = "note"  # other conditions, differences between ranks
    LIMIT = "limit"  # what limits its speed
    CONTEXT = "context"  # the machine: GPUs, compile workers, load
    REMEDY = "remedy"  # what to do; never in the headline


class AnswerClause(Struct, frozen=True, kw_only=True):
    """One fact of an answer, in words."""

    kind: Kind
    """What it is about: `state`, `loss` (lost ranks, a collective near its timeout), `wait` (what
    the run waits for, its speed), `reason` (of the state), `attention` (a condition that needs it),
    `note`, `limit` (of the speed), `context` (the machine), `remedy` (what to do).
    """
    short: str
    """As much of it as `summary` has; empty if none."""
    text: str
    """All of it; of a limit that `summary` has, the evidence."""


def field_texts(struct: type) -> dict[str, str]:
    """The text below each field of ``struct``, inherited fields included."""
    values: dict[str, str] = {}
    for item in reversed(struct.__mro__):
        if issubclass(item, Struct) and item is not Struct:
            values.update(texts_below(item.__module__).get(item.__name__, {}))
    return values


@cache
def texts_below(module: str) -> dict[str, dict[str, str]]:
    """The text below each field or constant of a module's classes, by class."""
    groups: dict[str, dict[str, str]] = {}
    for struct in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(struct, ast.ClassDef):
            continue
        docs = groups.setdefault(struct.name, {})
        for field, after in zip(struct.body, struct.body[1:], strict=False):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)) | ast.Assign(targets=[ast.Name(id=key)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[key] = " ".join(text.split())
    return groups
