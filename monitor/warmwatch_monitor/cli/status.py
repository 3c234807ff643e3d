"""``warmwatch status``: the answer in one sentence and a table, and as an exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console, JustifyMethod
from rich.table import Table

from warmwatch.verdict import State, least_advanced
from warmwatch_monitor.cli import options
from warmwatch_monitor.cli.answers import Answer, ask_fleet, asker, settings_from
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.export.words.observed import LIKELY

NO_RUN = 5
_CODES = {
    0: (State.WARM, State.EAGER, State.FINISHED),
    3: (State.STARTING, State.COMPILING, State.WARMING, State.RECOMPILING),
    4: (State.STALLED, State.FAILED, State.LOST),
}
_COLUMNS = (
    *("rank", "state", "since", "steps", "clean", "step\ntime", "compile"),
    *("phase", "re-\ncompiles", "graph\nbreaks"),
)

_PIPE_WIDTH = 120


@click.command()
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as JSON.")
@options.address
@options.directory
@options.prometheus
@click.pass_context
def status(
    ctx: click.Context,
    run: str | None,
    as_json: bool,
    address: str | None,
    dir: str | None,
    prometheus: str | None,
) -> None:
    """Say in one sentence and a table whether RUN (or every run) still compiles.

    Exit code: 0 warm, eager or finished; 3 starting, compiling, warming or recompiling;
    4 stalled, failed or lost; 5 no run found; 2 wrong usage.
    """
    if prometheus is None:
        settings = settings_from(address=address, dir=dir)
        answer = asker(settings, run, direct=dir is not None)()
    elif address is None and dir is None:
        answer = ask_fleet(prometheus, run)
    else:
        raise UsageError("--prometheus asks another program than --address and --dir: give one")
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        show(answer, time.time())
    ctx.exit(exit_code(answer))


def exit_code(answer: Answer) -> int:
    """The contract's exit code; of several runs that of the least advanced."""
    if not answer["runs"]:
        return NO_RUN
    state = least_advanced(State(run["state"]) for run in answer["runs"])
    return next(code for code, states in _CODES.items() if state in states)


def show(answer: Answer, now: float) -> None:
    """Print the sentence, a table for each run, and what could not be read."""
    click.echo(answer["summary"])
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    for run in answer["runs"]:
        console.print(_table(run, now, several=len(answer["runs"]) > 1))
    for training in answer.get("observed", ()):
        click.echo(f"without the agent: {outside(training)}")
    for refusal in answer["refusals"]:
        click.echo(f"not read: {refusal['path']}: {refusal['reason']}", err=True)


def outside(training: Answer) -> str:
    """A training that was only seen from outside, in one sentence."""
    what = training["command"] or "a process"
    likely = LIKELY[training["likely_compiling"]]
    words = "; ".join(training["evidence"])
    return f"{what} (pid {training['pid']}) {likely}, seen from outside: {words}"


def _table(run: Answer, now: float, *, several: bool) -> Table:
    table = Table(title=run["summary"] if several else None, title_justify="left", box=None)
    for column in _COLUMNS:
        side: JustifyMethod = "left" if column in ("state", "phase") else "right"
        table.add_column(column, justify=side, no_wrap=True)
    for rank in run["ranks"]:
        table.add_row(*_cells(rank, now))
    return table


def _cells(rank: Answer, now: float) -> Iterable[str]:
    compile, since = rank["compile"], rank["since"]
    return (
        str(rank["rank"]),
        rank["state"],
        "" if since is None else f"{duration(max(0.0, now - since))} ago",
        str(rank["steps"]),
        str(rank["clean_steps"]),
        duration(rank["step_seconds"]["median"]),
        duration(compile["seconds"]),
        compile["phase"] or "",
        _count(compile["recompiles"]),
        _count(compile["graph_breaks"]),
    )


def _count(number: int | None) -> str:
    return "" if number is None else str(number)


def duration(seconds: Any) -> str:
    """A length of time for a reader; empty where it is not known."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 600:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"
