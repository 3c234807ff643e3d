"""``warmwatch status``: the answer in one sentence, a table, and an exit code."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from shlex import quote

import click

from warmwatch.shared.phrases import duration
from warmwatch.shared.states import ENDED, ENDED_STATES, NEEDS_ATTENTION, State, least_advanced
from warmwatch_monitor.base.errors import UnknownRunError, UsageError, WarmwatchError
from warmwatch_monitor.base.settings import load_history_settings
from warmwatch_monitor.client.answers import (
    STARTED,
    Answer,
    answer_source,
    is_starting,
    note_missing_directory,
    settings_from,
    without_record,
)
from warmwatch_monitor.client.choice import only, why_incomplete
from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.client.history_writer import HistoryWriter
from warmwatch_monitor.commands.terminal.table import functions, lines, wrapped
from warmwatch_monitor.output import options
from warmwatch_monitor.output.amounts import few
from warmwatch_monitor.output.console import (
    draw,
    has_colour,
    is_redrawn,
    is_terminal,
    note,
    plain,
    reader_left,
    say,
    width,
)
from warmwatch_monitor.output.json_text import as_json
from warmwatch_monitor.output.summary import LIKELY, TO_BE_SEEN
from warmwatch_monitor.status.goals import lives

NO_RUN, TROUBLE, UNREAD, _STARTING = 5, 4, 6, 3
CODES = {
    0: (State.WARM, State.EAGER, State.FINISHED),
    _STARTING: (State.STARTING, State.COMPILING, State.WARMING, State.RECOMPILING),
    TROUBLE: (State.STALLED, State.FAILED, State.LOST),
}
_WATCH_SECONDS = 0.5
_LEAST_SECONDS, _MOST_SECONDS = 0.1, 3600.0
_RESTING_CPU = 0.01  # of a core
_NAMED = 3  # runs that have ended, in the line about them
_HELP = """Show in one sentence and a table whether RUN (or every living run) still compiles.

Runs that have ended are in the last line, unless none is alive; --all or a name shows them. RUN is
a name or a pattern such as 'gpt*'; gpt2@alice is alice's run. --watch also waits for a run that has
not begun; in a pipe it prints the answer whenever a state changes.

\b
Exit code: 0 warm, eager or finished; 3 not yet; 4 needs attention; 5 no run; 6 no answer
"""

_MOST = 3  # processes without a record that a message names
_AT_SPEED = {State.WARM.value, State.EAGER.value}
_UNMEASURED = (
    "what limits the speed, and whether steps get slower, takes some seconds of readings: "
    "`warmwatch status --watch` or a daemon (`warmwatch serve`) has them"
)


@click.command(help=_HELP)
@click.argument("run", required=False, shell_complete=run_names)
@click.option("--json", "is_json", is_flag=True, help="Print the whole answer as JSON.")
@click.option(
    "--watch",
    is_flag=False,
    flag_value="",
    metavar="[SECONDS]",
    help=f"Redraw every {_WATCH_SECONDS:g} s, or every SECONDS, until Ctrl-C.",
)
@click.option("-a", "--all", "ended", is_flag=True, help="Also show runs that have ended.")
@click.option(
    "-v",
    "--ranks",
    "every_rank",
    is_flag=True,
    help="Show a row for each rank, also of large runs; of a single rank, the evidence.",
)
@click.option(
    "--functions", "by_function", is_flag=True, help="Show what each function cost to compile."
)
@click.option(
    "--misses",
    is_flag=True,
    help="Show why compile caches missed, from the records on this machine: what differs between "
    "ranks, or from the previous run of the same name.",
)
@options.address
@options.directory
@options.prometheus
@options.access
@click.pass_context
def status(
    ctx: click.Context,
    /,
    run: str | None,
    is_json: bool,
    watch: str | None,
    ended: bool,
    every_rank: bool,
    by_function: bool,
    misses: bool,
    address: str | None,
    dir: str | None,
    prometheus: str | None,
    **access: str | None,
) -> None:
    """The command; its help is ``_HELP``."""
    run, seconds = _watched(run, watch)
    if seconds is not None and (is_json or by_function):
        other = "--json" if is_json else "--functions"
        raise UsageError(f"--watch redraws and {other} prints once: give one of them")
    if misses:
        if seconds is not None or is_json or by_function or every_rank:
            raise UsageError("--misses prints its own lines: give it without another view")
        ctx.exit(_misses(run, address or prometheus, dir))
    ended = ended or run is not None
    view = partial(picture, every_rank=every_rank, ended=ended, unattached=run is None)
    seen = HistoryWriter(load_history_settings(os.environ))
    query = answer_source(
        run, address=address, dir=dir, prometheus=prometheus, access=access, on_read=seen.take
    )
    starts = False
    try:
        if seconds is not None:
            answer = redraw(query, view, seconds)
        else:
            answer = query()
            if run is not None and address is None and prometheus is None:
                starts = _note_start(answer)
            if is_json:
                say(as_json(answer))
            else:
                draw(view(answer))
            if by_function and not is_json:
                _draw_functions(answer, ended=ended)
            _warn(answer, dir)
            if seconds is None and address is None and prometheus is None:
                for text in _not_yet(answer, read_here=query.daemon is None):
                    note(text)
    except UnknownRunError as error:
        if error.exit_code != NO_RUN or prometheus is not None:
            raise
        may_print = seconds is None and address is None and not is_json
        ctx.exit(_look_back(error, dir, may_print=may_print))
    seen.write()
    if seconds is None and not starts and (why := _why_trouble(answer)):
        note(why)
    ctx.exit(_STARTING if starts else exit_code(answer))


def _note_start(answer: Answer) -> bool:
    """Whether the one run of the answer starts again; its sentence then says so."""
    runs = answer["runs"]
    if len(runs) != 1 or not is_starting(runs[0]):
        return False
    answer["summary"] = runs[0]["summary"] = f"{runs[0]['summary']}; {STARTED}"
    return True


def _look_back(error: UnknownRunError, dir: str | None, *, may_print: bool) -> int:
    """Print how the run ended that is not in the answer any more; returns its exit code.

    Raises ``error``, which then says where the run may be: in the history, or without an agent.
    """
    from warmwatch_monitor.client import summaries  # loads SQLite

    run = summaries.ended_run(error.run, dir) if may_print else None
    if run is None:
        if summaries.is_in_history(error.run):
            error.args = (f"{error}; the history has it: warmwatch report {quote(error.run)}",)
        elif not error.near:
            error.args = ("; ".join((str(error), TO_BE_SEEN, *_unrecorded(error.run))),)
        raise error
    text = plain(summaries.ended_words(run, time.time()))
    say("\n".join(wrapped(text, width() if is_terminal() else None)))
    return next(code for code, states in CODES.items() if State(run.state) in states)


def _not_yet(answer: Answer, *, read_here: bool) -> Iterator[str]:
    """What a single answer cannot show, and what can."""
    if not any(map(lives, answer["runs"])):
        yield from _unrecorded()  # a training that was started again and still imports
    ranks = (rank for run in answer["runs"] for rank in run["ranks"])
    if read_here and any(
        rank["gpus"] and rank["limited_by"] is None and rank["state"] in _AT_SPEED for rank in ranks
    ):
        yield _UNMEASURED


def _unrecorded(run: str = "") -> Iterator[str]:
    """The processes that may be trainings and have no record, or none yet, in one sentence; those
    whose script is called as ``run`` first.
    """
    if pairs := sorted(without_record(), key=lambda pair: run not in pair[1]):
        seen = few([f"{command or 'a process'} (pid {pid})" for pid, command in pairs], _MOST)
        more = ": `warmwatch doctor`" if len(pairs) > _MOST else ""
        yield f"PyTorch is loaded, without a record so far, in {seen}{more}"


def _watched(run: str | None, watch: str | None) -> tuple[str | None, float | None]:
    """RUN and the seconds of ``--watch``, whose value is optional before RUN."""
    if not watch:
        return run, None if watch is None else _WATCH_SECONDS
    hint = ""
    try:
        seconds = float(watch)
    except ValueError:
        if run is None and not watch[0].isdigit():
            return watch, _WATCH_SECONDS
        seconds, hint = 0.0, f"; to watch a run of that name: status {watch} --watch"
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise UsageError(
            f"--watch: {watch!r} is not a number of seconds from {_LEAST_SECONDS:g} "
            f"to {_MOST_SECONDS:g}{'' if run else hint}"
        )
    return run, seconds


def _draw_functions(answer: Answer, *, ended: bool) -> None:
    if runs := _split(answer, ended=ended)[0]["runs"]:
        draw("\n".join(functions(plain(runs), width())))


def _warn(answer: Answer, dir: str | None) -> None:
    """Notes on stderr about a missing directory, and records that were not read."""
    if not answer["runs"]:
        note_missing_directory(dir)
    for refusal in plain(answer.get("refusals", [])):
        note(f"not read: {refusal['path']}: {refusal['reason']}")


def _misses(run: str | None, source: str | None, dir: str | None) -> int:
    from warmwatch_monitor.commands.cache_misses import lines as lines_of  # reads all journals

    if source is not None:
        raise UsageError("--misses reads the records of this machine: give --dir, or nothing")
    for line in lines_of(settings_from(dir=dir), run):
        say("\n".join(wrapped(plain(line), width() if is_terminal() else None)))
    return 0


def exit_code(answer: Answer | None) -> int:
    """The exit code as documented; for several runs that of the least advanced.

    A run that needs attention goes before all others.
    """
    if answer is None or not answer["runs"]:
        unread = answer is not None and why_incomplete(answer, os.geteuid())
        return UNREAD if unread else NO_RUN
    if any(map(_needs_attention, answer["runs"])):
        return TROUBLE
    state = least_advanced(State(run["state"]) for run in answer["runs"])
    return next(code for code, states in CODES.items() if state in states)


def _why_trouble(answer: Answer | None) -> str:
    """Which of several runs make the exit code 4; empty if it is another code, or all runs do."""
    if answer is None or exit_code(answer) != TROUBLE:
        return ""
    runs = answer["runs"]
    attention = [(run, names) for run in runs if (names := _needs_attention(run))]
    ended = all(State(run["state"]) in ENDED for run in runs)
    broken = [run for run in runs if State(run["state"]) in CODES[TROUBLE]]
    counted = [run for run in broken if ended or State(run["state"]) not in ENDED]
    parts = [
        f"{plain(run['run'])} needs attention ({', '.join(texts)})" for run, texts in attention
    ]
    parts += [f"{plain(run['run'])} {run['state']}" for run in counted if not _needs_attention(run)]
    if len(parts) == len(runs):
        return ""
    why = few(parts, _NAMED)
    name = quote(str([*(run for run, _ in attention), *counted][0]["run"]))
    return f"exit code {TROUBLE}: {why}; for the code of one run: warmwatch status {name}"


def _needs_attention(run: Answer) -> list[str]:
    """The conditions of its living ranks that need attention."""
    living = [rank for rank in run["ranks"] if State(rank["state"]) not in ENDED]
    holds = {condition["condition"] for rank in living for condition in rank["conditions"]}
    return sorted(holds & NEEDS_ATTENTION)


def _split(answer: Answer, *, ended: bool) -> tuple[Answer, list[Answer]]:
    """The answer with the runs to show, and the ended runs that are omitted.

    Omits none if no run is alive.
    """
    living = [run for run in answer["runs"] if run["state"] not in ENDED_STATES]
    if ended or not living or len(living) == len(answer["runs"]):
        return answer, []
    left = [run for run in answer["runs"] if run["state"] in ENDED_STATES]
    return only(answer, living), left


def _left_out(runs: list[Answer], now: float) -> str:
    """``ended: short failed 3 min ago``, the last one first."""
    times = [
        (max((rank["since"] for rank in run["ranks"] if rank["since"]), default=0.0), run)
        for run in runs
    ]
    parts = [
        f"{run['run']} {run.get('state_words') or run['state']}"
        + (f" {duration(max(0.0, now - at))} ago" if at else "")
        for at, run in sorted(times, key=lambda pair: -pair[0])
    ]
    return f"ended: {few(parts, _NAMED)} (--all shows more)"


def picture(
    answer: Answer, *, every_rank: bool = False, ended: bool = True, unattached: bool = True
) -> str:
    """The sentence, the table and the reasons, formatted for this output.

    ``unattached``: also trainings without the agent; of a named run they say nothing.
    """
    shown, left = _split(plain(answer), ended=ended)
    text_lines = lines(
        shown,
        now=time.time(),
        width=width(),
        wrap=is_terminal(),
        colour=has_colour(),
        every_rank=every_rank,
    )
    for training in shown.get("observed", ()) if unattached else ():
        if not (shown["runs"] and _rests(training)):
            text = f"without the agent: {outside(training)}"
            text_lines += wrapped(text, width() if is_terminal() else None)
    if left:
        text_lines += wrapped(_left_out(left, time.time()), width() if is_terminal() else None)
    return "\n".join(text_lines)


def _rests(training: Answer) -> bool:
    """Whether it holds no GPU and is idle: next to known runs it would be noise."""
    ratio = training["cpu_ratio"]
    return not training["gpus"] and ratio is not None and ratio < _RESTING_CPU


def outside(training: Answer) -> str:
    """An unattached training in one sentence."""
    what = training["command"] or "a process"
    likely = LIKELY[training["likely_compiling"]]
    text = "; ".join(training["evidence"])
    return f"{what} (pid {training['pid']}) {likely}: {text}"


Show = Callable[[Answer | None, str], None]


def redraw(
    query: Callable[[], Answer], picture: Callable[[Answer], str], seconds: float
) -> Answer | None:
    """Show the answer of ``query`` at this interval; returns the last one.

    Returns ``None`` if the requested run never appeared.

    Raises:
        WarmwatchError: the first request failed. Later failures are shown with the last answer,
        and ``redraw`` retries.
    """
    answer, trouble = _first(query)
    with contextlib.suppress(KeyboardInterrupt), _shown(picture) as show:
        while True:
            show(answer, trouble)
            time.sleep(seconds)
            if reader_left():
                return answer
            try:
                answer, trouble = query(), ""
            except UnknownRunError as error:
                trouble = _waiting(error)
            except WarmwatchError as error:
                trouble = f"{plain(str(error))}; retrying"
    return answer


def _first(query: Callable[[], Answer]) -> tuple[Answer | None, str]:
    """The first answer; a run that does not exist yet is not an error, it may begin."""
    try:
        return query(), ""
    except UnknownRunError as error:
        return None, _waiting(error)


def _waiting(error: UnknownRunError) -> str:
    return f"{plain(str(error))}; waiting for it"


@contextlib.contextmanager
def _shown(picture: Callable[[Answer], str]) -> Iterator[Show]:
    if not is_redrawn():
        yield _at_changes(picture)
        return
    from warmwatch_monitor.commands.terminal.redrawn import redrawn  # rich, for --watch only

    with redrawn() as update:

        def show(answer: Answer | None, trouble: str) -> None:
            shown = "" if answer is None else picture(answer)
            update("\n".join(filter(None, [trouble, shown])))

        yield show


def _at_changes(picture: Callable[[Answer], str]) -> Show:
    printed: list[object] = []

    def print_changed(answer: Answer | None, trouble: str) -> None:
        states = [(run["run"], run["state"]) for run in answer["runs"]] if answer else []
        if printed[-1:] == [(states, trouble)]:
            return
        printed[:] = [(states, trouble)]
        if trouble or answer is None:
            note(trouble)
        else:
            draw(picture(answer), end="\n\n")

    return print_changed
