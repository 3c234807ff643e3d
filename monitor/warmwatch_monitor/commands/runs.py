"""``warmwatch runs``: lists the living runs, then earlier ones, newest first."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict, replace

from warmwatch.shared.phrases import took
from warmwatch.shared.states import ENDED_STATES, FINISHED_SO, State
from warmwatch_monitor.base.errors import StoreError, UsageError, nearest
from warmwatch_monitor.base.settings import NO_SQLITE, HistorySettings, load_history_settings
from warmwatch_monitor.client.answers import settings_from
from warmwatch_monitor.client.completion import states
from warmwatch_monitor.client.history_writer import HistoryWriter
from warmwatch_monitor.client.records import make_poller
from warmwatch_monitor.commands.terminal.table import brief, cell_width, fitting, header, line
from warmwatch_monitor.history.listing import Listed, RunQuery, entry, matches
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.history.summaries import summarize_run
from warmwatch_monitor.model.run_summary import OUT_OF_SIGHT
from warmwatch_monitor.model.snapshot import incomplete, why_left_out
from warmwatch_monitor.output.amounts import if_known
from warmwatch_monitor.output.console import draw, has_colour, note, plain, say, width
from warmwatch_monitor.output.json_text import as_json
from warmwatch_monitor.output.options import Whole
from warmwatch_monitor.output.summary import shortened
from warmwatch_monitor.status.goals import lives
from warmwatch_monitor.status.words.states import ended_in_words

Run = dict[str, Any]


class ListedRun(Listed, frozen=True):
    """The list entry of a run. Figures of ranks are their maximum, lengths of steps and
    of the warm-up those of the rank that compiled longest; null: unknown."""

    end: str | None
    """How it ended, as in `end` of `/status`: `interrupted` (Ctrl-C) or `detached` are in the state
    `finished`. Null if it lives, or its end is not known."""


class RunsDocument(Struct, frozen=True, kw_only=True):
    """The list of `warmwatch runs --json`."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    database: str
    """Path of the history."""
    runs: list[ListedRun]
    """The runs: living ones first, then earlier ones, newest first."""


_LEFT = frozenset({"id", "run", "state", "began", "host", "mode"})
_COLUMNS = (
    *("id", "run", "state", "began", "took", "steps", "warm-up", "steady step", "compiled"),
    *("recompiles", "mode", "host"),
)
_DISPENSABLE = ("host", "mode", "recompiles", "compiled", "took", "steps", "warm-up")
_LONGEST_NAME = 30  # leaves room for the other columns that stay, at 80
UNSEEN = "?: the last known state of a run whose end no program observed"


def lines(runs: Sequence[Run], now: float, width: int, *, colour: bool) -> list[str]:
    """The table of at least one run, with a legend if it contains a ``?``."""
    rows = [_row(run, now) for run in runs]
    widths = _widths(rows, width)
    table = [header(widths, _LEFT, colour=colour)]
    table += (line(row, widths, _LEFT, colour=colour) for row in rows)
    return [*table, UNSEEN] if any(is_unseen(run, now) for run in runs) else table


def is_unseen(run: Run, now: float) -> bool:
    """Whether it was alive when last seen, and that is long ago."""
    return lives(run) and now - run["seen"] > OUT_OF_SIGHT


def _row(run: Run, now: float) -> dict[str, str]:
    ended = run["ended"] or run["seen"]
    return {
        "id": run["id"],
        "run": shortened(run["run"], _LONGEST_NAME),
        "state": f"{run['state']}?"
        if is_unseen(run, now)
        else ended_in_words(run["state"], run.get("end")),
        "began": _when(run["began"], now),
        "took": brief(max(0.0, ended - run["began"])),
        "steps": if_known(str, run["steps"]),
        "warm-up": if_known(brief, run["warmup_seconds"]),
        "steady step": if_known(took, run["step_seconds"]),
        "compiled": "none"
        if run["compile_seconds"] == 0
        else if_known(brief, run["compile_seconds"]),
        "recompiles": if_known(str, run["recompiles"]),
        "mode": run["mode"] or "",
        "host": run["host"] or "",
    }


def _when(epoch: float, now: float) -> str:
    """The local time; only the date for another year."""
    then = datetime.fromtimestamp(epoch)  # noqa: DTZ006 - local, for display
    this_year = then.year == datetime.fromtimestamp(now).year  # noqa: DTZ006
    return then.strftime("%m-%d %H:%M" if this_year else "%Y-%m-%d")


def _widths(rows: Sequence[Mapping[str, str]], width: int) -> dict[str, int]:
    """The columns that fit, with their widths; omits empty columns."""
    widths = {
        name: max(len(name), *(cell_width(row[name]) for row in rows))
        for name in _COLUMNS
        if any(row[name] for row in rows)
    }
    return fitting(widths, width, _DISPENSABLE)


_LIMIT = 20
_MOST = 1_000_000_000
_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_HELP = """List the living runs, then earlier ones, newest first.

Other commands accept a run's id, the beginning of its id, its name (the latest start), or NAME~1
(the start before). A daemon stores every run that it sees, other commands those whose end they see:
docs/reference/history.md. Nothing leaves this machine.

A `?` marks the last known state of a run whose end was not seen.
"""


@click.command(help=_HELP)
@click.option("--name", metavar="PATTERN", help="Runs with this name, or a pattern such as 'gpt*'.")
@click.option(
    "--host", metavar="PATTERN", help="Runs on this host, or on hosts that match the pattern."
)
@click.option(
    "--since",
    metavar="WHEN",
    help="Runs seen since a day (2026-11-20) or within a time (90m, 12h, 7d).",
)
@click.option(
    "--state",
    metavar="STATE",
    help="Runs whose last state is this one, or that were interrupted or detached.",
    shell_complete=states,
)
@click.option(
    "--limit",
    metavar="N",
    type=Whole(min=0, max=_MOST),
    help=f"Maximum number of runs; 0: all.  [{_LIMIT}]",
)
@click.option("--json", "is_json", is_flag=True, help="Print the runs as JSON.")
@click.pass_context
def runs(
    ctx: click.Context,
    name: str | None,
    host: str | None,
    since: str | None,
    state: str | None,
    limit: int | None,
    is_json: bool,
) -> None:
    """The command; its help is ``_HELP``."""
    moment = None if since is None else _moment(since, time.time())
    _check_state(state)
    settings = load_history_settings(os.environ)
    if not settings.able:
        raise StoreError(f"there is no history: {NO_SQLITE}")
    if settings.directory is None:
        raise UsageError(
            "WARMWATCH_STATE is off; unset it, or name a directory in it if this user has no home "
            "directory"
        )
    store = Store(settings)
    most = _LIMIT if limit is None else limit
    query = RunQuery(name=name, host=host, since=moment, state=state, limit=most)
    living, why = _living(settings)
    listed, in_all = _with_living(store, query, living)
    filtered = any(text is not None for text in (name, host, since, state))
    ends = store.ends(entry.id for entry in listed if entry.state in ENDED_STATES)
    shown = [ListedRun(**asdict(entry), end=ends.get(entry.id)) for entry in listed]
    if is_json:
        say(as_json(RunsDocument(database=str(store.path), runs=shown)))
    else:
        values = [plain(asdict(entry)) for entry in shown]
        _show(values, in_all, store.path, filtered=filtered)
        if any(
            lives(value) and value["id"] not in living and not is_unseen(value, time.time())
            for value in values
        ):
            say("A living run is written once a minute; `warmwatch status` shows it as it is now.")
    if why:
        note(f"warmwatch: living runs may be missing: {why}")
    ctx.exit((6 if why else 5) if filtered and not listed else 0)


def _living(settings: HistorySettings) -> tuple[Mapping[str, Listed], str | None]:
    """The living runs by id, from their records, and why some may be missing.

    Writes those that have ended to the history.
    """
    ended = HistoryWriter(settings)
    snapshot = make_poller(settings_from(observe="off")).poll_once()
    ended.take(snapshot)
    ended.write()
    generator = (entry(summarize_run(run, snapshot)) for run in snapshot.runs if run.living)
    why = incomplete(snapshot) or why_left_out(snapshot, "", os.geteuid())
    return {listed.id: listed for listed in generator}, why


def _with_living(
    store: Store, query: RunQuery, living: Mapping[str, Listed]
) -> tuple[list[Listed], int]:
    """The runs to show, the living ones first, and how many there are regardless of the limit."""
    first = [listed for listed in living.values() if matches(listed, query)]
    first.sort(key=lambda entry: -entry.began)
    most = query.limit and query.limit + len(living)
    stored = store.listed(replace(query, limit=most))
    earlier = [listed for listed in stored if listed.id not in living]
    again = sum(store.count(replace(query, id=id)) for id in living)  # as they were a minute ago
    shown = [*first, *earlier]
    return shown[: query.limit or None], store.count(query) - again + len(first)


def _show(groups: list[dict[str, Any]], all_of_them: int, path: Path, *, filtered: bool) -> None:
    if groups:
        draw("\n".join(lines(groups, time.time(), width(), colour=has_colour())))
        more = f"{len(groups)} of {all_of_them} runs (--limit 0: all)"
        whole = "1 run" if all_of_them == 1 else f"{all_of_them} runs"
        say(f"{more if len(groups) < all_of_them else whole}, in {path}")
    elif filtered:
        say(f"no such run in {path}; `warmwatch runs` lists the runs")
    else:
        say(
            f"no run yet in {path}\n"
            "start `warmwatch serve` and a training, or train with "
            "`warmwatch run --report -- python train.py`"
        )


def _moment(text: str, now: float) -> float:
    """The moment that ``--since`` names. Raises UsageError."""
    if ago := re.fullmatch(r"(\d{1,6})([mhdw])", text):
        return now - int(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since: {text!r} is neither a day (2026-11-20, 2026-11-20T14:30) nor a time until "
            "now (90m, 12h, 7d, 2w)"
        ) from None


def _check_state(state: str | None) -> None:
    names = [*(item.value for item in State), *FINISHED_SO]
    if state is not None and state not in names:
        near = nearest(state, names)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(names)}"
        raise UsageError(f"--state: {state!r} is no state; {hint}")
