"""A document as sections, items and tables; each view lays it out its own way."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Column(Struct, frozen=True):
    """A table's column; numbers stand to the ``right``."""

    name: str
    right: bool = False


class Table(Struct, frozen=True):
    """Cells are words; an empty one is "not known"."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


class Item(Struct, frozen=True):
    """A point of a list; ``more``: what is said below it."""

    words: str
    more: tuple[str, ...] = ()


class Section(Struct, frozen=True):
    """Under a title: a table or a list or both, then remarks. ``chart``: which may stand beside."""

    title: str
    table: Table | None = None
    items: tuple[Item, ...] = ()
    remarks: tuple[str, ...] = ()
    chart: str | None = None


class Document(Struct, frozen=True):
    """A page. ``answer``: said first. ``warnings``: what has to be known before it is believed."""

    title: str
    state: str
    answer: str
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()


_RIGHT = ">"


def table(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, sparse: bool = False
) -> Table | None:
    """``names``: of the columns; behind that of numbers stands a ``>``. ``None`` without rows.

    ``sparse``: a column in which nothing is known is left out.
    """
    if not rows:
        return None
    kept = [at for at in range(len(names)) if not sparse or any(row[at] for row in rows)]
    columns = [Column(names[at].rstrip(_RIGHT), names[at].endswith(_RIGHT)) for at in kept]
    return Table(tuple(columns), tuple(tuple(row[at] for at in kept) for row in rows))
