"""One ``/status`` answer as lines of text: the sentence, one table for all runs, and the reasons.

Pure, and of the standard library alone, since ``warmwatch status`` has to answer at once. Which
columns there are depends on the width, and not on what the runs do at the moment: what does not fit
is left out, column by column, the least important first, and no cell is ever cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warmwatch_monitor.export.words.throughput import rates
from warmwatch_monitor.views.reasons import reasons
from warmwatch_monitor.views.rows import Row, rows
from warmwatch_monitor.views.states import STYLES, painted

Answer = dict[str, Any]

# each column, and the width that it has where nothing in it is unusually long: so a picture that is
# drawn again stands still. One run at 80 columns has all up to the recompiles.
_USUAL: Mapping[str, int] = {
    "run": 3,
    "rank": 4,
    "state": 11,
    "phase": 14,
    "for": 7,
    "steps": 6,
    "clean": 5,
    "a step": 6,
    "last step": 11,
    "compiled": 8,
    "recompiles": 10,
    "breaks": 6,
    "pid": 7,
}
LEFT = frozenset({"run", "state", "phase"})
# left out where the width does not do for all, in this order; the others always stay
_DISPENSABLE = ("pid", "clean", "breaks", "last step", "recompiles", "compiled", "phase", "for")
_GAP = "  "


def lines(
    answer: Answer,
    *,
    now: float,
    width: int,
    wrap: bool,
    colour: bool,
    every_rank: bool = False,
) -> list[str]:
    """The whole picture. ``wrap``: break the sentences at ``width`` too; the table always does."""
    said = wrapped(answer["summary"], width if wrap else None)
    for words in answer.get("details", ()):
        said += wrapped(words, width if wrap else None, indent="  ")
    if answer["runs"]:
        said += table(answer["runs"], now, width, colour=colour, every_rank=every_rank)
    for words in _worth(answer["runs"]):
        said += wrapped(words, width if wrap else None)
    for words, advice in reasons(answer["runs"]):
        said += wrapped(words, width if wrap else None)
        said += wrapped(advice, width if wrap else None, indent="    ") if advice else []
    return said


def _worth(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What each run's recent speed comes to, as its first rank that knows it has it."""
    for run in runs:
        known = (one for rank in run["ranks"] if (one := rank.get("worth")))
        if worth := next(known, None):
            per_second = worth["tokens_per_second"], worth["samples_per_second"]
            words = rates(*per_second, worth["mfu_ratio"], estimated=worth["estimated"])
            if words:
                yield f"{run['run']}: at this speed {words}"


def table(
    runs: Sequence[Answer], now: float, width: int, *, colour: bool, every_rank: bool = False
) -> list[str]:
    """The table's lines; a run is a column where there are several, or a line where too long."""
    cells = rows(runs, now, every_rank=every_rank)
    several = len(runs) > 1
    widths = columns(cells, width, several=several)
    headed = several and _whole(widths) > width
    if headed:
        widths = columns(cells, width, several=False)
    header = _line({name: name for name in widths}, widths)
    said, run = [painted(header, "dim") if colour else header], None
    for row in cells:
        if headed and row["run"] != run:
            run = row["run"]
            said.append(run)
        said.append(_line(row, widths, colour=colour))
    return said


def columns(cells: Sequence[Row], width: int, *, several: bool) -> dict[str, int]:
    """The columns that fit ``width``, and how wide each of them is."""
    widths = {
        name: max(usual, *(cell_width(row[name]) for row in cells))
        for name, usual in _USUAL.items()
        if several or name != "run"
    }
    for name in _DISPENSABLE:
        if _whole(widths) <= width:
            break
        del widths[name]
    return widths


def _whole(widths: Mapping[str, int]) -> int:
    return sum(wide + len(_GAP) for wide in widths.values()) - len(_GAP)


def cell_width(text: str) -> int:
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
        space = " " * (width - cell_width(text))
        if colour and name == "state":
            text = painted(text, STYLES.get(text, ""))
        parts.append(text + space if name in LEFT else space + text)
    return _GAP.join(parts).rstrip()


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """``text`` in lines of ``width``, where there is one."""
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
