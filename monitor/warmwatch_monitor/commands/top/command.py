"""``warmwatch top``: runs and ranks on a live screen."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import click

from warmwatch_monitor.base.errors import UnknownRunError, UsageError, WarmwatchError
from warmwatch_monitor.client.answers import answer_source
from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.commands.top.polling import Feed
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import is_redrawn, plain, say

_USUAL_SECONDS = 1.0
_HELP = """Watch runs and ranks: state, phase, progress, steps, power, recompiles, functions, GPUs.

RUN is a name or a pattern such as 'gpt*'. The plots show what the daemon has seen, an hour at most;
without a daemon they begin now. `?` lists the keys.
"""


@click.command(help=_HELP)
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "--interval",
    "seconds",
    metavar="SECONDS",
    type=options.Number(min=0.2, max=3600),
    default=_USUAL_SECONDS,
    help=f"Seconds between two updates.  [{_USUAL_SECONDS:g}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one update as `status --json` does.")
@options.address
@options.directory
@options.prometheus
@options.access
def top(
    run: str | None,
    seconds: float,
    as_json: bool,
    address: str | None,
    dir: str | None,
    prometheus: str | None,
    **access: str | None,
) -> None:
    if not as_json and not (is_redrawn() and sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("top needs a terminal; `warmwatch status` prints the answer once")
    source: dict[str, Any] = {"address": address, "dir": dir, "prometheus": prometheus}
    source["access"] = access
    if as_json:
        say(json.dumps(answer_source(run, **source)(), indent=2))
        return
    from warmwatch_monitor.commands.top.app import Top  # Textual, which --json does without

    feed = Feed(run, **source)
    with contextlib.suppress(UnknownRunError):  # the run may still begin
        feed.answer()
    app = Top(lambda: plain(feed.answer()), seconds, lambda missing: plain(feed.past(missing)))
    if problem := app.run():
        raise WarmwatchError(problem)
    if app.return_code != 0:  # Textual has printed the traceback
        sys.exit(1)
