"""Updates the parts of Textual's table that differ from a listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from warmwatch_monitor.commands.terminal.table import LEFT, NOT_AT_SPEED, cell_width
from warmwatch_monitor.commands.top.listing import Entry, Listing
from warmwatch_monitor.output.states import PHASE_STYLES, STYLES

_GAP = 2
_SPARK, _LEAST_SPARK = 30, 8  # characters, at most and at least
_STEPS = "step time"


def room(shown: Listing, width: int) -> int:
    """The width of the sparklines to the right of ``shown``; 0 if they do not fit."""
    left = width - sum(wide + _GAP for wide in shown.widths.values())
    return min(_SPARK, left) if shown.entries and left >= _LEAST_SPARK else 0


def fill(table: DataTable[Text], shown: Listing, cursor: int, sparks: Sequence[Text]) -> None:
    """Make ``table`` show ``shown``, with the cursor on that row.

    ``sparks``: the sparkline of each row, or nothing if they do not fit.
    """
    heads = [(_head(name, wide), wide) for name, wide in shown.widths.items()]
    heads += [(Text(_STEPS), len(sparks[0]) - _GAP)] if sparks else []
    if [(column.label, column.width - _GAP) for column in table.ordered_columns] != heads:
        table.clear(columns=True)
        for head, wide in heads:
            table.add_column(head, width=wide + _GAP)
    if table.row_count > len(shown.entries):
        table.clear()
    for place, entry in enumerate(shown.entries):
        cells = [*_cells(entry, shown.widths), *sparks[place : place + 1]]
        if place >= table.row_count:
            table.add_row(*cells)
            continue
        for column, cell in enumerate(cells):
            if table.get_cell_at(where := Coordinate(place, column)) != cell:
                table.update_cell_at(where, cell)
    if table.cursor_row != cursor:
        table.move_cursor(row=cursor, animate=False)


def _head(name: str, wide: int) -> Text:
    return Text(name.ljust(wide) if name in LEFT else name.rjust(wide))


_CELL_STYLES: Mapping[str, Mapping[str, str]] = {
    "state": STYLES,
    "detail": {**PHASE_STYLES, **dict.fromkeys(NOT_AT_SPEED.values(), "bold yellow")},
}


def _cells(entry: Entry, widths: Mapping[str, int]) -> list[Text]:
    cells = []
    for name, wide in widths.items():
        text = entry.cells[name]
        space = " " * (wide - cell_width(text))
        style = _CELL_STYLES.get(name, {}).get(text, "")
        cells.append(Text(text + space if name in LEFT else space + text, style=style))
    return cells
