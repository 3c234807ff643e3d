"""One ``/status`` answer as lines of text: the sentence, one table for all runs, and the reasons.

Pure, and of the standard library alone, since ``warmwatch status`` has to answer at once. What does
not fit the width is left out, column by column, the least important first; no cell is ever cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warmwatch_monitor.views.reasons import reasons
from warmwatch_monitor.views.rows import Row, rows
from warmwatch_monitor.views.states import STYLES, painted

Answer = dict[str, Any]

_COLUMNS = (
    *("run", "rank", "state", "phase", "since", "steps", "clean", "a step", "compiled"),
    *("recompiles", "breaks", "pid"),
)
_LEFT = frozenset({"run", "state", "phase"})
# left out where the width does not do for all, in this order; the others always stay
_DISPENSABLE = ("breaks", "clean", "recompiles", "pid", "phase", "since", "compiled")
_GAP = "  "


def lines(
    answer: Answer,
    *,
    now: float,
    width: int,
    wrap: bool,
    colour: bool,
    every_rank: bool = False,
    widest: dict[str, str] | None = None,
) -> list[str]:
    """The whole picture. ``wrap``: break the sentences at ``width`` too; the table always does.

    ``widest``: of a picture that is drawn again and again, the widest cell of each column so far;
    it is brought up to date, and no column gets narrower, so that nothing jumps to the left.
    """
    said = _wrapped(answer["summary"], width if wrap else None)
    if answer["runs"]:
        said += table(
            answer["runs"], now, width, colour=colour, every_rank=every_rank, widest=widest
        )
    for words, advice in reasons(answer["runs"]):
        said += _wrapped(words, width if wrap else None)
        said += _wrapped(advice, width if wrap else None, indent="    ") if advice else []
    return said


def table(
    runs: Sequence[Answer],
    now: float,
    width: int,
    *,
    colour: bool,
    every_rank: bool = False,
    widest: dict[str, str] | None = None,
) -> list[str]:
    """The table's lines; a run is a column where there are several, or a line where too long."""
    cells = rows(runs, now, every_rank=every_rank)
    several = len(runs) > 1
    measured = _measured(cells, several, width, widest)
    columns = _columns(measured, several)
    columns = _fitting(columns, measured, width)
    headed = several and _width(columns, measured) > width
    if headed:
        columns = _fitting(_columns(measured, several=False), measured, width)
    widths = {name: _column_width(name, measured) for name in columns}
    header = _line({name: name for name in columns}, widths)
    said, run = [painted(header, "dim") if colour else header], None
    for row in cells:
        if headed and row["run"] != run:
            run = row["run"]
            said.append(run)
        said.append(_line(row, widths, colour=colour))
    return said


def _columns(cells: Sequence[Row], several: bool) -> list[str]:
    return [n for n in _COLUMNS if (several or n != "run") and any(row[n] for row in cells)]


def _measured(
    cells: list[Row],
    several: bool,
    width: int,
    widest: dict[str, str] | None,
) -> Sequence[Row]:
    """The rows, and ``widest`` as one more, unless that would leave a column of theirs out."""
    if widest is None:
        return cells
    before = [widest] if widest.keys() >= set(_COLUMNS) else []
    both = [*cells, *before]
    fit = [_fitting(_columns(these, several), these, width) for these in (cells, both)]
    too_wide = several and _width(fit[1], both) > width
    if too_wide or not set(fit[0]) <= set(fit[1]):
        both = cells
    widest.update({n: max((row[n] for row in both), key=_cell_width) for n in _COLUMNS})
    return both


def _fitting(columns: Sequence[str], cells: Sequence[Row], width: int) -> list[str]:
    left = list(columns)
    for name in _DISPENSABLE:
        if _width(left, cells) <= width:
            break
        if name in left:
            left.remove(name)
    return left


def _width(columns: Sequence[str], cells: Sequence[Row]) -> int:
    return sum(_column_width(name, cells) + len(_GAP) for name in columns) - len(_GAP)


def _column_width(name: str, cells: Sequence[Row]) -> int:
    return max(len(name), *(_cell_width(row[name]) for row in cells))


def _cell_width(text: str) -> int:
    """How many places of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    import unicodedata  # hardly ever needed

    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) != 0 for sign in text)


def _line(row: Row, widths: Mapping[str, int], *, colour: bool = False) -> str:
    parts = []
    for name, width in widths.items():
        text = row[name]
        space = " " * (width - _cell_width(text))
        if colour and name == "state":
            text = painted(text, STYLES.get(text, ""))
        parts.append(text + space if name in _LEFT else space + text)
    return _GAP.join(parts).rstrip()


def _wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    if width is None:
        return [indent + text]
    import textwrap  # what is piped has no width

    return textwrap.wrap(
        *(text, max(width, 20)),
        initial_indent=indent,
        subsequent_indent=indent or "  ",
        break_on_hyphens=False,
        break_long_words=False,
    ) or [""]
