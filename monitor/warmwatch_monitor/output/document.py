"""A document of sections, items and tables, which each view lays out its own way; as Markdown.

Terminal lines are wrapped by rich; nothing is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from types import MappingProxyType

from msgspec import Struct
from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from warmwatch_monitor.output.summary import STYLES


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


_LEAST = 40
# a rule below the head, of a character that every terminal and log has
_BOX = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_BETWEEN = 3  # characters between two columns: their padding, and one of the box

Charts = Mapping[str, Sequence[Text]]
_NONE: Charts = MappingProxyType({})


def lines(document: Document, *, width: int, colour: bool, charts: Charts = _NONE) -> str:
    """``charts``: by the name in a section. Texts are printable."""
    return printed(_parts(document, charts, width), width=width, colour=colour)


def printed(parts: Iterable[RenderableType], *, width: int, colour: bool) -> str:
    """``parts`` below each other, wrapped at ``width``."""
    out = StringIO()
    console = Console(
        file=out,
        width=max(width, _LEAST),
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for part in parts:
        console.print(part, soft_wrap=False, overflow="fold")
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))


def _parts(document: Document, charts: Charts, width: int) -> Iterator[RenderableType]:
    yield Text(document.answer, style=STYLES.get(document.state, "bold"))
    for warning in document.warnings:
        yield Text(f"Note: {warning}.", style="yellow")
    if document.facts:
        yield ""
        facts = RichTable.grid(padding=(0, 2))
        for name, value in document.facts:
            facts.add_row(Text(name, style="dim"), Text(value, overflow="fold"))
        yield facts
    for section in document.sections:
        yield ""
        yield from _section_lines(section, charts.get(section.chart or "", ()), width)


def _section_lines(section: Section, chart: Sequence[Text], width: int) -> Iterator[RenderableType]:
    yield Text(section.title, style="bold")
    if section.table is not None:
        yield Padding(_table_lines(fitting(section.table, width - 2)), (0, 0, 0, 2))
    yield from chart
    for item in section.items:
        yield from _item_lines(item)
    for remark in section.remarks:
        yield _hanging("", remark)


def _item_lines(item: Item) -> Iterator[RenderableType]:
    yield _hanging("-", item.words)
    for text in item.more:
        yield _hanging("", text, indent=4)


def _hanging(mark: str, words: str, indent: int = 2) -> RenderableType:
    """``words`` after ``mark``; wrapped lines are indented like the first."""
    grid = RichTable.grid(padding=(0, 1 if mark else 0))
    grid.add_column(width=len(mark), no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.expand = True
    grid.add_row(mark, Text(words))
    return Padding(grid, (0, 0, 0, indent))


def fitting(table: Table, width: int) -> Table:
    """``table``, or its rows as columns if only that fits ``width``."""
    if _width(table) <= width or len(table.rows) >= len(table.columns):
        return table
    names = [Column(table.columns[0].name), *(Column(row[0], right=True) for row in table.rows)]
    rows = zip(*(row[1:] for row in table.rows), strict=True)
    heads = (column.name for column in table.columns[1:])
    turned = Table(tuple(names), tuple((name, *row) for name, row in zip(heads, rows, strict=True)))
    return turned if _width(turned) <= width else table


def _width(table: Table) -> int:
    columns = zip((column.name for column in table.columns), *table.rows, strict=True)
    widest = [max(map(cell_len, column)) for column in columns]
    return sum(widest) + _BETWEEN * (len(widest) - 1)


def _table_lines(table: Table) -> RichTable:
    made = RichTable(box=_BOX, pad_edge=False, show_edge=False, padding=(0, 1))
    for column in table.columns:
        made.add_column(
            Text(column.name),
            justify="right" if column.right else "left",
            overflow="fold",
            header_style="dim",
        )
    for row in table.rows:
        made.add_row(*(Text(cell or "-", overflow="fold") for cell in row))
    return made
