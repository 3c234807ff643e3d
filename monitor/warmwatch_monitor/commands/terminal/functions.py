"""The cost of each function as a table. Pure.

The names get the rest of the width. A longer name has its own line above its numbers: the ends of
names distinguish functions that Dynamo resumes, so they are not cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from warmwatch.shared.phrases import called_from, counted, place, took
from warmwatch_monitor.commands.terminal.table import line
from warmwatch_monitor.output.amounts import cached, if_known, mostly, own_words

Answer = dict[str, Any]

_NAME = "function"
_HEAD = (_NAME, "count", "took", "mostly", "ops", "kernels", "cached")
_SHORTEST, _LONGEST = 16, 60  # columns of a name in the line of its numbers
_LEFT = frozenset({_NAME, "mostly"})
_UNKNOWN = "-"


def functions(runs: Sequence[Answer], width: int) -> list[str]:
    """For each run, the table of the rank with the most compile time."""
    return [line for run in runs for line in _of_run(run, width)]


def _of_run(run: Answer, width: int) -> Iterator[str]:
    values = [rank for rank in run["ranks"] if rank["compile"].get("functions")]
    if not values:
        yield f"{run['run']}: {_none_of(run)}"
        return
    rank = max(
        values, key=lambda value: sum(each["seconds"] for each in value["compile"]["functions"])
    )
    yield f"{run['run']}, rank {rank['rank']}: what each function cost to compile"
    cells = [_HEAD, *map(_row, rank["compile"]["functions"])]
    rows = [dict(zip(_HEAD, row, strict=True)) for row in cells]
    widths = {name: max(len(row[name]) for row in rows) for name in _HEAD}
    room = width - sum(2 + taken for name, taken in widths.items() if name != _NAME)
    widths[_NAME] = min(widths[_NAME], max(_SHORTEST, min(_LONGEST, room)))
    for row in rows:
        if len(row[_NAME]) > widths[_NAME]:
            yield row[_NAME]
            row[_NAME] = ""
        yield line(row, widths, _LEFT)
    yield from _breaks_and_fallbacks(rank)


def _breaks_and_fallbacks(rank: Answer) -> Iterator[str]:
    for value in rank["compile"]["breaks"]:
        where = f" in {value['called']}" if value.get("called") else ""
        yield f"{counted(value['count'], 'graph break')}{where}: {own_words(value['reason'])}"
    for held in rank["conditions"]:
        if held["condition"] == "fallback":
            yield held["words"]


def _none_of(run: Answer) -> str:
    """Why there is no table: a journal without compilations, or no journal read."""
    if any(rank["compile"].get("functions") is None for rank in run["ranks"]):
        return "what each function cost is not known here"
    return "no compilation of a function has ended"


def _row(values: Answer) -> tuple[str, ...]:
    cells = (
        _named(values),
        str(values["compilations"]),
        took(values["seconds"]),
        mostly(values["phase_seconds"]),
        if_known(str, values["ops"]),
        if_known(str, values["kernels"]),
        cached(values["cache_hits"], values["cache_misses"]),
    )
    return tuple(cell or _UNKNOWN for cell in cells)


def _named(values: Answer) -> str:
    if values["others"]:
        return counted(values["others"], "other")
    if values["name"] is None:
        return "(of no known function)"
    named = place(values["name"], values["file"], values["line"]).replace("`", "")
    return named + called_from(values.get("caller"))
