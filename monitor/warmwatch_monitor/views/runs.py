"""The runs that are remembered, as a table of a line for each. Pure.

What does not fit is left out, column by column, the least important first, and no cell is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from warmwatch_monitor.export.words.wording import step_length
from warmwatch_monitor.model.account import OUT_OF_SIGHT
from warmwatch_monitor.views.rows import brief
from warmwatch_monitor.views.states import STYLES, painted
from warmwatch_monitor.views.table import cell_width
from warmwatch_monitor.views.waiting import lives

Run = dict[str, Any]
_LEFT = frozenset({"id", "run", "state", "began", "host", "mode"})
_COLUMNS = (
    *("id", "run", "state", "began", "took", "steps", "warm-up", "a step", "compiled"),
    *("recompiles", "mode", "host"),
)
_DISPENSABLE = ("host", "mode", "recompiles", "compiled", "took", "steps", "warm-up")
_GAP = "  "
UNSEEN = "?: the last state that was seen of a run whose end nobody saw"


def lines(runs: Sequence[Run], now: float, width: int, *, colour: bool) -> list[str]:
    """The table, given at least one run; under it what a ``?`` means, where there is one."""
    rows = [_row(run, now) for run in runs]
    widths = _widths(rows, width)
    header = _line({name: name for name in widths}, widths)
    said = [painted(header, "dim") if colour else header]
    for row, run in zip(rows, runs, strict=True):
        said.append(_line(row, widths, run["state"] if colour else None))
    return [*said, UNSEEN] if any(is_unseen(run, now) for run in runs) else said


def is_unseen(run: Run, now: float) -> bool:
    """Whether it was alive when it was seen last, and that is long ago."""
    return lives(run) and now - run["seen"] > OUT_OF_SIGHT


def _row(run: Run, now: float) -> dict[str, str]:
    ended = run["ended"] or run["seen"]
    a_step = run["step_seconds"]
    return {
        "id": run["id"],
        "run": run["run"],
        "state": f"{run['state']}?" if is_unseen(run, now) else run["state"],
        "began": _when(run["began"], now),
        "took": brief(max(0.0, ended - run["began"])),
        "steps": _count(run["steps"]),
        "warm-up": _seconds(run["warmup_seconds"]),
        "a step": "" if a_step is None else step_length(a_step),
        "compiled": _seconds(run["compile_seconds"]),
        "recompiles": _count(run["recompiles"]),
        "mode": run["mode"] or "",
        "host": run["host"] or "",
    }


def _when(epoch: float, now: float) -> str:
    """By the clock of who reads it; another year's as a day."""
    then = datetime.fromtimestamp(epoch)  # noqa: DTZ006 - local, as it is read
    this_year = then.year == datetime.fromtimestamp(now).year  # noqa: DTZ006
    return then.strftime("%m-%d %H:%M" if this_year else "%Y-%m-%d")


def _seconds(value: float | None) -> str:
    return "" if value is None else brief(value)


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _widths(rows: Sequence[Mapping[str, str]], width: int) -> dict[str, int]:
    """The columns that fit, and how wide each is; one in which nothing is said is left out."""
    widths = {
        name: max(len(name), *(cell_width(row[name]) for row in rows))
        for name in _COLUMNS
        if any(row[name] for row in rows)
    }
    for name in _DISPENSABLE:
        if sum(widths.values()) + len(_GAP) * (len(widths) - 1) <= width:
            break
        widths.pop(name, None)
    return widths


def _line(row: Mapping[str, str], widths: Mapping[str, int], state: str | None = None) -> str:
    parts = []
    for name, width in widths.items():
        text = row[name]
        space = " " * (width - cell_width(text))
        if name == "state" and state is not None:
            text = painted(text, STYLES.get(state, ""))
        parts.append(text + space if name in _LEFT else space + text)
    return _GAP.join(parts).rstrip()
