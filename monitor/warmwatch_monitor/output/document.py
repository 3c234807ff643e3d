"""A document of sections, items and tables, which each view lays out its own way; as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
    """A list item; ``more``: text below it. ``remedy``: the number of the item that has its remedy
    in the report's list of remedies, for a link; 0 if none has.
    """

    words: str
    more: tuple[str, ...] = ()
    remedy: int = 0


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
    columns = [Column(names[at].removesuffix(_RIGHT), names[at].endswith(_RIGHT)) for at in shown]
    return Table(tuple(columns), tuple(tuple(row[at] for at in shown) for row in rows))


_SIGNS = re.compile(r"([\\*_\[\]#|~<>&@$])")
_CODE = re.compile(r"`([^`\n]+)`")


def markdown(document: Document) -> str:
    """``document`` as GitHub Markdown, for a pull request or the summary of a job.

    All text is literal: Markdown and HTML syntax is escaped.
    """
    return "\n".join(_lines(document)).rstrip("\n") + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield f"## {literal(document.title)}"
    yield from ("", literal(document.answer))
    for warning in document.warnings:
        yield from ("", f"> **Note:** {literal(warning)}")
    if document.facts:
        yield ""
        yield from (f"- {name}: {literal(value)}" for name, value in document.facts)
    for section in document.sections:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    yield from ("", f"### {literal(section.title)}", "")
    if section.table is not None:
        yield from _table(section.table)
        yield ""
    for item in section.items:
        yield from _item(item)
    if section.items and section.remarks:
        yield ""
    for remark in section.remarks:
        yield f"{literal(remark)}  "


def _item(item: Item) -> Iterator[str]:
    yield f"- {literal(item.words)}"
    yield from (f"  - {literal(text)}" for text in item.more)


def _table(table: Table) -> Iterator[str]:
    yield _row(tuple(column.name for column in table.columns))
    yield "|" + "|".join("---:" if column.right else "---" for column in table.columns) + "|"
    yield from (_row(row) for row in table.rows)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(literal(cell) for cell in cells) + " |"


def literal(text: str) -> str:
    """``text`` for Markdown, with its code in backticks and all other syntax escaped."""
    parts, at = [], 0
    for code in _CODE.finditer(text):
        parts += [_escaped(text[at : code.start()]), f"`{code[1].replace('|', chr(92) + '|')}`"]
        at = code.end()
    return "".join([*parts, _escaped(text[at:])]).replace("\n", " ")


def _escaped(text: str) -> str:
    return _SIGNS.sub(r"\\\1", text).replace("`", r"\`")
