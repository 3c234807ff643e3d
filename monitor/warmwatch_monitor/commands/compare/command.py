"""``warmwatch compare``: runs side by side, and their break-even."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.client.summaries import as_written, run_summaries
from warmwatch_monitor.commands.compare.comparison import compare as compare_all
from warmwatch_monitor.commands.compare.other_runs import others
from warmwatch_monitor.commands.compare.wording import page
from warmwatch_monitor.commands.report.command import cleaned, show
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import say
from warmwatch_monitor.output.json_text import as_json

if TYPE_CHECKING:
    from warmwatch_monitor.model import Snapshot

_MOST = 12


@click.command()
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True, shell_complete=run_names)
@click.option("--json", "is_json", is_flag=True, help="Print the comparison as JSON.")
@click.option(
    "--markdown", is_flag=True, help="Print the comparison as Markdown, for a pull request."
)
@options.directory
def compare(runs: tuple[str, ...], is_json: bool, markdown: bool, dir: str | None) -> None:
    """Compare runs: first step, warm-up, steady step, memory, energy, break-even.

    The reference is the first eager run, or the first run if none is eager. Each RUN is a name, an
    id, NAME~1 (the start before), or a pattern that may match several runs.

    A run is faster if the difference is more than that between runs of one program. So run each
    program at least twice, in turn (A B A B), under one name each: other starts are found.
    """
    if is_json and markdown:
        raise UsageError("give either --json or --markdown, not both")
    recorded: list[Snapshot] = []
    named = run_summaries(runs, dir=dir, take=recorded.append)
    summaries = list({summary.id: summary for summary in named}.values())
    if not 1 < len(summaries) <= _MOST:
        name = f"; {summaries[0].run}~1 is the start before it" if len(summaries) == 1 else ""
        raise UsageError(
            f"give 2 to {_MOST} runs to compare; {' '.join(runs)!r} names {len(summaries)}: "
            f"{', '.join(run.run for run in summaries)}{name}"
        )
    with as_written(summaries):
        item = others(summaries, recorded[0], history=dir is None)
        made = cleaned(compare_all(summaries, **item._asdict()))
    if is_json:
        say(as_json(made))
        return
    show(page(made), markdown=markdown)
