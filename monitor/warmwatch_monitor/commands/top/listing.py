"""The list of runs and ranks: rows, order, widths; Textual's table is updated where it differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from warmwatch_monitor.commands.terminal.table import (
    LEFT,
    NOT_AT_SPEED,
    Group,
    Row,
    cell_width,
    columns,
    groups,
    row,
)
from warmwatch_monitor.figures.compile import recompiles
from warmwatch_monitor.output.amounts import a_step
from warmwatch_monitor.output.summary import PHASE_STYLES, STYLES, place

Answer = Mapping[str, Any]
Key = tuple[str, int]  # the run, and the first rank of the row


class Entry(NamedTuple):
    """One row: ranks of a run with equal cells."""

    key: Key
    run: Mapping[str, Any]
    ranks: Sequence[Mapping[str, Any]]
    cells: Row


class Listing(NamedTuple):
    """The rows, and the columns that fit with their widths."""

    entries: list[Entry]
    widths: dict[str, int]


def _since(group: Group) -> float:
    values = [rank["since"] for rank in group[1] if rank["since"] is not None]
    return min(values, default=float("inf"))


def _most(figure: Callable[[Mapping[str, Any]], float | None]) -> Callable[[Group], float]:
    return lambda group: -max(figure(rank) or 0.0 for rank in group[1])


# sort keys of the rows; ties are sorted by state, run, rank
ORDERS: Mapping[str, Callable[[Group], Any]] = {
    "state": lambda group: place(group[1][0]["state"]),
    "run": lambda group: group[0]["run"],
    "longest": _since,
    "slowest": _most(a_step),
    "compiled": _most(lambda rank: rank["compile"]["seconds"]),
    "recompiles": _most(lambda rank: recompiles(rank["compile"])),
    "steps": lambda group: min(rank["steps"] for rank in group[1]),
}


def listing(
    answer: Answer,
    now: float,
    width: int,
    *,
    order: str = "state",
    turned: bool = False,
    needle: str = "",
    every_rank: bool = False,
) -> Listing:
    """The rows of ``answer`` that contain ``needle`` in run name, state, phase or host."""
    chosen = [
        group
        for group in groups(answer["runs"], every_rank=every_rank)
        if _holds(group, needle.casefold())
    ]
    chosen.sort(key=lambda group: (group[0]["run"], group[1][0]["rank"]))
    chosen.sort(key=lambda group: place(group[1][0]["state"]))
    chosen.sort(key=ORDERS[order], reverse=turned)
    entries = [
        Entry((run["run"], ranks[0]["rank"]), run, ranks, row(run, ranks, now))
        for run, ranks in chosen
    ]
    several = len(answer["runs"]) > 1
    widths = columns([entry.cells for entry in entries], width, several=several) if entries else {}
    return Listing(entries, widths)


def at(entries: Sequence[Entry], key: Key | None) -> int:
    """The position of the row of ``key``; the first row if that row is gone."""
    for place_of, entry in enumerate(entries):
        ranks = {rank["rank"] for rank in entry.ranks}
        if key is not None and entry.key[0] == key[0] and key[1] in ranks:
            return place_of
    return 0


def _holds(group: Group, needle: str) -> bool:
    run, ranks = group
    first = ranks[0]
    parts = (run["run"], first["state"], first["compile"]["phase"] or "", first["host"] or "")
    return not needle or any(needle in word.casefold() for word in parts)


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
    for at, entry in enumerate(shown.entries):
        cells = [*_cells(entry, shown.widths), *sparks[at : at + 1]]
        if at >= table.row_count:
            table.add_row(*cells)
            continue
        for column, cell in enumerate(cells):
            if table.get_cell_at(where := Coordinate(at, column)) != cell:
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
