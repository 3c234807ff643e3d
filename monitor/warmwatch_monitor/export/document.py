"""What is to be read, as parts that each view lays out in its own way; none words any. Pure.

A terminal, a page and Markdown show the same Document, so they cannot disagree.
"""

from __future__ import annotations

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
