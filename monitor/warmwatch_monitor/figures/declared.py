"""How a figure is declared: once, at its field, with its text below it.

From the declaration come its key in ``/status`` and the JSON Schema (``status/schema``), its metric
family with the same text (``metrics``), how it is read from a slot (``pipeline``) and from the
samples of a Prometheus (``fleet``), and its lines in the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

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
