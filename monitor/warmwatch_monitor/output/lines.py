"""A document as terminal lines, wrapped by rich; nothing is cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from types import MappingProxyType

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from warmwatch_monitor.output.document import Column, Document, Item, Section, Table
from warmwatch_monitor.output.states import STYLES

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
        yield from _section(section, charts.get(section.chart or "", ()), width)


def _section(section: Section, chart: Sequence[Text], width: int) -> Iterator[RenderableType]:
    yield Text(section.title, style="bold")
    if section.table is not None:
        yield Padding(_table(fitting(section.table, width - 2)), (0, 0, 0, 2))
    yield from chart
    for item in section.items:
        yield from _item(item)
    for remark in section.remarks:
        yield _hanging("", remark)


def _item(item: Item) -> Iterator[RenderableType]:
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


def _table(table: Table) -> RichTable:
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
