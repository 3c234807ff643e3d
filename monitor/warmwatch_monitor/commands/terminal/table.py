"""One ``/status`` answer as text: the sentence, one table of ranks, and the reasons.

In the table of what each function cost, the names get the rest of the width. A longer name has its
own line above its numbers: the ends of names distinguish functions that Dynamo resumes, so they are
not cut.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from warmwatch.shared.phrases import called_from, counted, duration, took
from warmwatch.shared.phrases import place as place_of
from warmwatch.shared.states import FINISHED_SO
from warmwatch_monitor.commands.terminal.reasons import reasons
from warmwatch_monitor.figures.compile import recompiles
from warmwatch_monitor.figures.training import FORMULA
from warmwatch_monitor.output.amounts import (
    a_step,
    cached,
    consecutive,
    if_known,
    mostly,
    own_words,
    rates,
    spans,
)
from warmwatch_monitor.output.summary import STYLES, overview, painted, place
from warmwatch_monitor.status.goals import lives

Rank = dict[str, Any]
Row = Mapping[str, str]
Group = tuple[Mapping[str, Any], list[Rank]]

_ALWAYS_APART = 4  # up to this many ranks, each has a row
_LIKE = 0.1
_AT_WORK = ("compiling", "recompiling")
_LONGEST_RANGES = 20
# a warm or eager rank with such a condition is not simply at its real speed
NOT_AT_SPEED = {"exiting": "exiting", "silent": "no step", "slower": "slower"}


def rows(runs: Sequence[Mapping[str, Any]], now: float, *, every_rank: bool) -> list[Row]:
    """One row for each rank or group of equal ranks: living runs first, the worst first."""
    return [row(run, ranks, now) for run, ranks in groups(runs, every_rank=every_rank)]


def groups(runs: Sequence[Mapping[str, Any]], *, every_rank: bool) -> list[Group]:
    """Which ranks of which run share a row, in the order of :func:`rows`."""
    ordered = sorted(runs, key=lambda run: (place(run["state"]), run["run"]))
    return [
        (run, ranks)
        for run in ordered
        for ranks in _rank_groups(run["ranks"], every_rank=every_rank)
    ]


def row(run: Mapping[str, Any], ranks: Sequence[Rank], now: float) -> Row:
    """The row of ``ranks``, which agree."""
    since = _since(run, ranks)
    spent = None if since is None else max(0.0, now - since)
    return {"run": run["run"], **_cells(ranks, spent)}


def _rank_groups(ranks: Sequence[Rank], *, every_rank: bool) -> list[list[Rank]]:
    groups: list[list[Rank]] = []
    apart = every_rank or len(ranks) <= _ALWAYS_APART
    for rank in ranks:
        like = (group for group in groups if not apart and _agree(group[0], rank))
        group = next(like, None)
        if group is None:
            groups.append([rank])
        else:
            group.append(rank)
    return sorted(groups, key=lambda group: (place(group[0]["state"]), group[0]["rank"]))


def _agree(values: Rank, other: Rank) -> bool:
    """Whether two rows would show the same."""
    return (
        _exact(values) == _exact(other)
        and abs(values["steps"] - other["steps"]) <= 1  # records are read one after another
        and _near(a_step(values), a_step(other), 0.0)
        and _near(values["compile"]["seconds"], other["compile"]["seconds"], 0.5)
    )


def _exact(rank: Rank) -> tuple[Any, ...]:
    compile = rank["compile"]
    return rank["state"], _detail(rank), recompiles(compile), compile["graph_breaks"]


def _near(value: float | None, other: float | None, floor: float) -> bool:
    if value is None or other is None:
        return value is other
    return abs(value - other) <= max(floor, _LIKE * max(value, other))


def _since(run: Mapping[str, Any], ranks: Sequence[Rank]) -> float | None:
    """Since when they compile, as in the sentence; otherwise, since when they are in their state,
    which may include steps between recompiles.
    """
    if ranks[0]["state"] in _AT_WORK and (compiling := run.get("compiling_since")) is not None:
        return float(compiling)
    return min((rank["since"] for rank in ranks if rank["since"] is not None), default=None)


def _cells(ranks: Sequence[Rank], spent: float | None) -> Row:
    """The cells of ranks that agree; small differences show the rank furthest behind."""
    first = ranks[0]
    compile, state = first["compile"], first["state"]
    lengths = [length for rank in ranks if (length := a_step(rank)) is not None]
    ages = [age for rank in ranks if (age := rank.get("last_step_age_seconds")) is not None]
    stepped = max(ages, default=None)
    compiled = max(rank["compile"]["seconds"] for rank in ranks)
    unseen = any(rank["compile"].get("graphs_before") for rank in ranks)
    clean = min(rank["clean_steps"] for rank in ranks) if lives(first) else None
    return {
        "rank": _ranges([rank["rank"] for rank in ranks]),
        "state": state,
        "detail": _detail(first),
        "since": if_known(brief, spent),
        "steps": str(min(rank["steps"] for rank in ranks)),
        "clean": if_known(str, clean),
        "a step": took(max(lengths)) if len(lengths) == len(ranks) else "",
        "last step": if_known(lambda age: f"{brief(age)} ago" if age >= 1 else "now", stepped),
        "compiled": _cost(compiled) if compiled else "" if unseen else "none",
        "recompiles": if_known(str, recompiles(compile)),
        "breaks": if_known(str, compile["graph_breaks"]),
        "pid": if_known(str, first["pid"]) if len(ranks) == 1 else "",
    }


def _detail(rank: Rank) -> str:
    """Its current phase, or what qualifies its state; for an ended rank, its end."""
    end = rank.get("end")  # not known for a past moment
    if not end:
        holds = {value["condition"] for value in rank.get("conditions", ())}
        instead = next((text for name, text in NOT_AT_SPEED.items() if name in holds), "")
        if instead == "exiting":
            return instead
        return rank["compile"]["phase"] or (instead if rank["state"] in ("warm", "eager") else "")
    if end["how"] in FINISHED_SO:
        return str(end["how"])
    if end.get("out_of_memory"):
        return "out of memory"
    if end.get("exception"):
        return str(end["exception"])
    if end.get("signal"):
        return str(end["signal"])
    return f"exit code {end['exit_code']}" if end.get("exit_code") else ""


def _cost(seconds: float) -> str:
    """As in a report, but of at most seven characters."""
    return took(seconds) if seconds < 99.95 else brief(seconds)


def brief(seconds: float) -> str:
    """A duration of at most seven characters: ``149 s``, ``119 min``, ``3.2 h``, ``12 d``."""
    hours = seconds / 3600
    if hours < 2:
        return duration(seconds)
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} d"


def _ranges(numbers: Sequence[int]) -> str:
    """``0-3,6``; if that gets long, the range and the count."""
    text = spans(consecutive(numbers))
    if len(text) <= _LONGEST_RANGES:
        return text
    return f"{numbers[0]}-{numbers[-1]} ({len(numbers)})"


Answer = dict[str, Any]

# Each column with its default width, so that a redrawn table does not move. A single run at 80
# columns shows everything up to the recompiles.
_USUAL: Mapping[str, int] = {
    "run": 3,
    "rank": 4,
    "state": 11,
    "detail": 14,
    "since": 7,
    "steps": 6,
    "clean": 5,
    "a step": 6,
    "last step": 11,
    "compiled": 8,
    "recompiles": 10,
    "breaks": 6,
    "pid": 7,
}
LEFT = frozenset({"run", "state", "detail"})
# omitted in this order if the width is too small; the others always stay
_DISPENSABLE = (
    "pid",
    "clean",
    "breaks",
    "last step",
    "recompiles",
    "compiled",
    "detail",
    "since",
)
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
    text_lines = wrapped(overview(answer), width if wrap else None)
    for text in answer.get("details", ()):
        text_lines += wrapped(text, width if wrap else None, indent="  ", hanging="    ")
    if answer["runs"]:
        text_lines += table(answer["runs"], now, width, colour=colour, every_rank=every_rank)
    for text in _worth(answer["runs"]):
        text_lines += wrapped(text, width if wrap else None)
    above = answer.get("details", ())
    for run in answer["runs"] if every_rank else ():
        ranks = run["ranks"]
        for text in ranks[0]["evidence"] if len(ranks) == 1 else ():
            text_lines += wrapped(text, width if wrap else None) if text not in above else []
    for text, advice in reasons(answer["runs"], remedies=1, now=now, above=above):
        text_lines += wrapped(text, width if wrap else None)
        text_lines += wrapped(advice, width if wrap else None, indent="    ") if advice else []
    return text_lines


def _worth(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each run's recent throughput, from its first rank that has it."""
    for run in runs:
        generator = (value for rank in run["ranks"] if (value := rank.get("worth")))
        if worth := next(generator, None):
            per_second = worth["tokens_per_second"], worth["samples_per_second"]
            text = rates(
                *per_second,
                worth["mfu_ratio"],
                estimated=worth["estimated"] and worth["formula"] == FORMULA,
                dtypes=worth.get("dtypes", {}),
            )
            if text:
                yield f"{run['run']}: at this speed {text}"


def table(
    runs: Sequence[Answer], now: float, width: int, *, colour: bool, every_rank: bool = False
) -> list[str]:
    """The table's lines; several runs have a column for the name, or a line if it is too long."""
    cells = rows(runs, now, every_rank=every_rank)
    several = len(runs) > 1
    widths = columns(cells, width, several=several)
    headed = several and _whole(widths) > width
    if headed:
        widths = columns(cells, width, several=False)
    text_lines, run = [header(widths, colour=colour)], None
    for row in cells:
        if headed and row["run"] != run:
            run = row["run"]
            text_lines.append(run)
        text_lines.append(line(row, widths, colour=colour))
    return text_lines


def columns(cells: Sequence[Row], width: int, *, several: bool) -> dict[str, int]:
    widths = {
        name: max(usual, *(cell_width(row[name]) for row in cells))
        for name, usual in _USUAL.items()
        if several or name != "run"
    }
    return fitting(widths, width, _DISPENSABLE)


def fitting(widths: dict[str, int], width: int, dispensable: Sequence[str]) -> dict[str, int]:
    """``widths`` without columns that do not fit ``width``; omitted in the order of the last."""
    for name in dispensable:
        if _whole(widths) <= width:
            break
        widths.pop(name, None)
    return widths


def _whole(widths: Mapping[str, int]) -> int:
    return sum(wide + len(_GAP) for wide in widths.values()) - len(_GAP)


def cell_width(text: str) -> int:
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) != 0 for sign in text)


def header(widths: Mapping[str, int], left: Set[str] = LEFT, *, colour: bool) -> str:
    """The names of the columns; those in ``left`` are aligned to the left."""
    names = line({name: name for name in widths}, widths, left)
    return painted(names, "dim") if colour else names


def line(
    row: Mapping[str, str],
    widths: Mapping[str, int],
    left: Set[str] = LEFT,
    *,
    colour: bool = False,
) -> str:
    """The cells of ``row`` in columns; ``colour``: of its state."""
    parts = []
    for name, width in widths.items():
        text = row[name]
        space = " " * (width - cell_width(text))
        if colour and name == "state":
            text = painted(text, STYLES.get(text.rstrip("?"), ""))
        parts.append(text + space if name in left else space + text)
    return _GAP.join(parts).rstrip()


def wrapped(
    text: str, width: int | None, indent: str = "", hanging: str | None = None
) -> list[str]:
    """``text`` in lines of ``width``, if there is a width. ``hanging``: of all but the first."""
    if width is None:
        return [indent + text]
    return textwrap.wrap(
        *(text, max(width, 20)),
        initial_indent=indent,
        subsequent_indent=hanging or indent or "  ",
        break_on_hyphens=False,
        break_long_words=False,
    ) or [""]


_NAME = "function"
_HEAD = (_NAME, "count", "took", "mostly", "ops", "kernels", "cached")
_SHORTEST, _LONGEST = 16, 60  # columns of a name in the line of its numbers
_LEFT = frozenset({_NAME, "mostly"})
_UNKNOWN = "-"


def functions(runs: Sequence[Answer], width: int) -> list[str]:
    """For each run, the table of the rank with the most compile time."""
    return [line for run in runs for line in _of_run(run, width)]


def _of_run(run: Rank, width: int) -> Iterator[str]:
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
    named = place_of(values["name"], values["file"], values["line"]).replace("`", "")
    return named + called_from(values.get("caller"))
