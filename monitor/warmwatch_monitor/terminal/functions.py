"""The cost of each function as a table. Pure; standard library only.

The names get the rest of the width. A longer name has its own line above its numbers: the ends of
names distinguish functions that Dynamo resumes, so they are not cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from warmwatch.shared.phrases import called_from, counted, duration, place
from warmwatch_monitor.output.amounts import cached, if_known, mostly, own_words

Answer = dict[str, Any]

_HEAD = ("function", "count", "took", "mostly", "ops", "kernels", "cached")
_GAP = "  "
_SHORTEST, _LONGEST = 16, 60  # columns of a name in the line of its numbers
_LEFT = (0, 3)
_UNKNOWN = "-"


def functions(runs: Sequence[Answer], width: int) -> list[str]:
    """For each run, the table of the rank with the most compile time."""
    return [line for run in runs for line in _of_run(run, width)]


def _of_run(run: Answer, width: int) -> Iterator[str]:
    known = [rank for rank in run["ranks"] if rank["compile"].get("functions")]
    if not known:
        yield f"{run['run']}: {_none_of(run)}"
        return
    rank = max(known, key=lambda one: sum(each["seconds"] for each in one["compile"]["functions"]))
    yield f"{run['run']}, rank {rank['rank']}: what each function cost to compile"
    rows = [_HEAD, *(_row(one) for one in rank["compile"]["functions"])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    room = width - sum(len(_GAP) + taken for taken in widths[1:])
    widths[0] = min(widths[0], max(_SHORTEST, min(_LONGEST, room)))
    for row in rows:
        if len(row[0]) > widths[0]:
            yield row[0]
            row = ("", *row[1:])
        yield _GAP.join(
            text.ljust(wide) if at in _LEFT else text.rjust(wide)
            for at, (text, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
    yield from _breaks_and_fallbacks(rank)


def _breaks_and_fallbacks(rank: Answer) -> Iterator[str]:
    for one in rank["compile"]["breaks"]:
        where = f" in {one['called']}" if one.get("called") else ""
        yield f"{counted(one['count'], 'graph break')}{where}: {own_words(one['reason'])}"
    for held in rank["conditions"]:
        if held["condition"] == "fallback":
            yield held["words"]


def _none_of(run: Answer) -> str:
    """Why there is no table: a journal without compilations, or no journal read."""
    if any(rank["compile"].get("functions") is None for rank in run["ranks"]):
        return "what each function cost is not known here"
    return "no compilation of a function has ended"


def _row(one: Answer) -> tuple[str, ...]:
    cells = (
        _named(one),
        str(one["compilations"]),
        duration(one["seconds"]),
        mostly(one["phase_seconds"]),
        if_known(str, one["ops"]),
        if_known(str, one["kernels"]),
        cached(one["cache_hits"], one["cache_misses"]),
    )
    return tuple(cell or _UNKNOWN for cell in cells)


def _named(one: Answer) -> str:
    if one["others"]:
        return f"{one['others']} others"
    if one["name"] is None:
        return "(of no known function)"
    named = place(one["name"], one["file"], one["line"]).replace("`", "")
    return named + called_from(one.get("caller"))
