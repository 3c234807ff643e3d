"""A document as sections, items and tables; each view lays it out its own way."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Column(Struct, frozen=True):
    """A table's column; numbers stand to the ``right``."""

    name: str
    right: bool = False


class Table(Struct, frozen=True):
    """Cells are texts; an empty one is "not known"."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


class Item(Struct, frozen=True):
    """A list item; ``more``: text below it. ``remedy``: shown where a reader looks it up."""

    words: str
    more: tuple[str, ...] = ()
    remedy: str = ""


class Section(Struct, frozen=True):
    """Under a title: a table or a list or both, then remarks. ``chart``: the name of its chart."""

    title: str
    table: Table | None = None
    items: tuple[Item, ...] = ()
    remarks: tuple[str, ...] = ()
    chart: str | None = None


class Document(Struct, frozen=True):
    """A page. ``answer``: its first sentence. ``warnings``: caveats, shown before the sections."""

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
    """``names``: of the columns; a trailing ``>`` marks numbers. ``None`` without rows.

    ``sparse``: omit columns without any value.
    """
    if not rows:
        return None
    shown = [at for at in range(len(names)) if not sparse or any(row[at] for row in rows)]
    columns = [Column(names[at].rstrip(_RIGHT), names[at].endswith(_RIGHT)) for at in shown]
    return Table(tuple(columns), tuple(tuple(row[at] for at in shown) for row in rows))
