"""``warmwatch wait``: blocks until a state is reached, and reports progress."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator

import click

from warmwatch.shared.phrases import duration
from warmwatch_monitor.client.answers import answer_source, note_missing_directory
from warmwatch_monitor.client.completion import goal_names, run_names
from warmwatch_monitor.client.events import EventClient
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.history.writer import HistoryWriter
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note, reader_left, rewrite, say
from warmwatch_monitor.settings import load_history_settings
from warmwatch_monitor.status.goals import GOALS, SETTLED
from warmwatch_monitor.wait.waiter import (
    APPEARS_SECONDS,
    KINDS,
    NEW_START_SECONDS,
    Outcome,
    PollInterval,
    Wait,
    WaitState,
    listed,
)

_NO_READER = 141  # as a shell has it, for SIGPIPE
_HELP = """Block until RUN (or each of your living runs) is warm. RUN may start later than the wait.

RUN is a name or a pattern such as 'gpt*', among your own runs; gpt2@alice is alice's run, '*@*'
matches everybody's. A run that ended before the wait began is skipped, because it is not the one
that you launch. Exceptions: it began within the last 10 s, or RUN is named and --until has only
ends (ended, finished, failed, lost). Without --timeout, a RUN that has failed or is lost has 30 s
to start again, and a run that is not there has 10 min to appear.

On a terminal, a line on stderr shows the progress; elsewhere, a line whenever a state changes.

\b
Exit code: 0 reached
           4 the run ended first, or had failed and did not start again, or a
             compilation takes so long that it may hang (long_compile; a wait for an
             end continues)
           5 no such run appeared within 10 min; with --timeout it waits that long
           124 the timeout expired
           141 the reader of its output is gone
           2 wrong usage
           6 the daemon or the Prometheus server does not answer, or no such run appeared
             within 10 min and not all records could be read
"""


@click.command(help=_HELP)
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "--until",
    metavar="STATE[,STATE]",
    shell_complete=goal_names,
    default="warm",
    help="A state, settled (warm, and its speed no longer changes), or ended (any end). With "
    "several, whichever comes first.  [warm]",
)
@click.option(
    "--timeout",
    metavar="S",
    type=options.Number(min=0),
    help="Give up after S seconds.  [never, once a run appeared]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the last answer as JSON, also on failure."
)
@options.address
@options.directory
@options.prometheus
@options.access
@click.pass_context
def wait(
    ctx: click.Context,
    /,
    run: str | None,
    until: str,
    timeout: float | None,
    as_json: bool,
    address: str | None,
    dir: str | None,
    prometheus: str | None,
    **access: str | None,
) -> None:
    goals = _goals(until)
    end = time.monotonic() + (math.inf if timeout is None else timeout)
    seen = HistoryWriter(load_history_settings(os.environ))
    query = answer_source(
        run,
        address=address,
        dir=dir,
        prometheus=prometheus,
        access=access,
        own=True,
        on_read=seen.take,
        until=end,
    )
    uid, clock = (os.geteuid(), None) if prometheus is None else (None, time.time)
    note_missing_directory(dir, " yet; waiting for it")

    def goes_on(state: str, words: str) -> None:
        if reader_left():  # nobody will read the answer
            ctx.exit(_NO_READER)
        report(state, words)

    with _progress() as report, contextlib.closing(EventClient(KINDS)) as client:
        often = sys.stderr.isatty() or SETTLED in goals  # no event reports that a speed settles
        interval = PollInterval(query, client, is_seen=often)
        new_start = NEW_START_SECONDS if timeout is None else math.inf
        appears = APPEARS_SECONDS if timeout is None else math.inf
        pause = interval.pause
        wanted = Wait(query, run, goals, goes_on, uid, clock, pause, new_start, appears)
        last = wanted.block(max(0.0, end - time.monotonic()))
    seen.write()  # without a daemon, only this command saw the signal that ended a run
    _report(last, f"not {listed(goals)} after {timeout or 0:g} s: ", as_json=as_json)
    assert last.outcome is not None
    ctx.exit(last.outcome.value)


def _goals(until: str) -> tuple[str, ...]:
    goals = tuple(dict.fromkeys(goal.strip() for goal in until.split(",")))
    for goal in goals:
        if goal not in GOALS:
            raise UsageError(f"--until: {goal!r} is not a state. States: {', '.join(GOALS)}")
    return goals


def _report(last: WaitState, late: str, *, as_json: bool) -> None:
    """The sentence; with ``as_json`` the answer alone has stdout, and there may be none."""
    if as_json and last.answer is not None:
        say(json.dumps(last.answer, indent=2))
    if last.outcome is not Outcome.REACHED:
        note(f"{late if last.outcome is Outcome.TIMEOUT else ''}{last.words}")
    elif not as_json:
        say(last.words)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, str], None]]:
    """A line that changes on a terminal; elsewhere a line whenever the state changes."""
    if sys.stderr.isatty():
        began = time.monotonic()
        try:
            yield lambda _state, words: rewrite(f"{duration(time.monotonic() - began)}: {words}")
        finally:
            rewrite("")
        return
    printed: list[str] = []

    def report(state: str, words: str) -> None:
        if printed[-1:] != [state]:
            printed.append(state)
            note(words)

    yield report
