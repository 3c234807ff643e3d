"""``warmwatch status``: the answer in one sentence and a table, and as an exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import click

from warmwatch.states import ENDED, NEEDS_A_PERSON, State, least_advanced
from warmwatch_monitor.cli import options
from warmwatch_monitor.cli.answers import Answer, asker, note_missing_directory, settings_from
from warmwatch_monitor.cli.output import (
    draw,
    has_colour,
    height,
    is_terminal,
    note,
    plain,
    say,
    width,
)
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.views.functions import functions
from warmwatch_monitor.views.table import lines

NO_RUN, TROUBLE = 5, 4
_CODES = {
    0: (State.WARM, State.EAGER, State.FINISHED),
    3: (State.STARTING, State.COMPILING, State.WARMING, State.RECOMPILING),
    TROUBLE: (State.STALLED, State.FAILED, State.LOST),
}
_PAUSE_SECONDS = 0.5
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_CLEAR = "\x1b[2J"


@click.command()
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as JSON.")
@click.option("--watch", is_flag=True, help="Show it anew, twice a second, until Ctrl-C.")
@click.option(
    "-v", "--ranks", "every_rank", is_flag=True, help="A row for each rank, however many."
)
@click.option(
    "--functions", "by_function", is_flag=True, help="What each function cost to compile."
)
@click.option(
    "--misses",
    is_flag=True,
    help="Say why compile caches missed, from the records here: what differs between the ranks, "
    "or from the run before of the same name.",
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
    as_json: bool,
    watch: bool,
    every_rank: bool,
    by_function: bool,
    misses: bool,
    address: str | None,
    dir: str | None,
    prometheus: str | None,
    **access: str | None,
) -> None:
    """Say in one sentence and a table whether RUN (or every run) still compiles.

    RUN is a name or a pattern such as 'gpt*': of your own runs, else of others'. gpt2@alice is
    alice's.

    \b
    Exit code: 0 warm, eager or finished
               3 starting, compiling, warming or recompiling
               4 stalled, failed or lost; or a living rank's condition needs a person
                 (nothing_captured: Dynamo captured no graph, so this is eager speed;
                 long_compile: a compilation takes far longer than any before explains;
                 never_compiled: torch.compile was called and nothing has compiled)
               5 no run found
               2 wrong usage
               6 the daemon or the Prometheus that was asked for does not answer
    With --misses: 0, 5 or 2, whatever the runs do.
    """
    if watch and by_function:
        raise UsageError("--watch shows the states anew and --functions prints once: give one")
    if watch and as_json:
        raise UsageError("--watch shows a table anew and --json prints once: give one")
    if misses and (watch or as_json or by_function or every_rank):
        raise UsageError("--misses prints its own lines: give it without another view")
    if misses:
        ctx.exit(_misses(run, address or prometheus, dir))
    ask = asker(run, address=address, dir=dir, prometheus=prometheus, access=access)
    if watch:
        answer = _watch(ask, every_rank=every_rank)
    else:
        answer = ask()
        if as_json:
            say(json.dumps(answer, indent=2))
        else:
            draw(picture(answer, every_rank=every_rank))
            if by_function and answer["runs"]:
                draw("\n".join(functions(plain(answer["runs"]), width())))
        note_missing_directory(dir)
        _note_refusals(answer)
    ctx.exit(exit_code(answer))


def _misses(run: str | None, asked: str | None, dir: str | None) -> int:
    from warmwatch_monitor.cli.misses import lines as lines_of

    if asked is not None:
        raise UsageError("--misses reads the records of this machine: give --dir, or nothing")
    for line in lines_of(settings_from(dir=dir), run):
        say(plain(line))
    return 0


def exit_code(answer: Answer) -> int:
    """The contract's exit code; of several runs that of the least advanced.

    What needs a person does whatever the others do.
    """
    if not answer["runs"]:
        return NO_RUN
    if any(_needs_a_person(rank) for run in answer["runs"] for rank in run["ranks"]):
        return TROUBLE
    state = least_advanced(State(run["state"]) for run in answer["runs"])
    return next(code for code, states in _CODES.items() if state in states)


def _needs_a_person(rank: Answer) -> bool:
    holds = {one["condition"] for one in rank["conditions"]}
    return State(rank["state"]) not in ENDED and bool(holds & NEEDS_A_PERSON)


def picture(
    answer: Answer, *, every_rank: bool = False, widest: dict[str, str] | None = None
) -> str:
    """The sentence, the table and the reasons, as this output takes them."""
    shown = plain(answer)
    said = lines(
        shown,
        now=time.time(),
        width=width(),
        wrap=is_terminal(),
        colour=has_colour(),
        every_rank=every_rank,
        widest=widest,
    )
    said += [f"without the agent: {outside(training)}" for training in shown.get("observed", ())]
    return "\n".join(said)


def outside(training: Answer) -> str:
    """A training that was only seen from outside, in one sentence."""
    from warmwatch_monitor.export.words.observed import LIKELY

    what = training["command"] or "a process"
    likely = LIKELY[training["likely_compiling"]]
    words = "; ".join(training["evidence"])
    return f"{what} (pid {training['pid']}) {likely}, seen from outside: {words}"


def _note_refusals(answer: Answer) -> None:
    for refusal in plain(answer.get("refusals", [])):
        note(f"not read: {refusal['path']}: {refusal['reason']}")


def _watch(ask: Callable[[], Answer], *, every_rank: bool) -> Answer:
    """Show it until Ctrl-C; the last answer. Without a terminal, whenever a state has changed."""
    answer, told = ask(), None
    widest: dict[str, str] = {}
    if is_terminal():
        draw(_CLEAR, end="")
    try:
        while True:
            states = [(run["run"], run["state"]) for run in answer["runs"]]
            if is_terminal():
                drawn = picture(answer, every_rank=every_rank, widest=widest)
                draw(_redrawn(drawn), end="")
            elif states != told:
                draw(picture(answer, every_rank=every_rank), end="\n\n")
            told = states
            time.sleep(_PAUSE_SECONDS)
            answer = ask()
    except KeyboardInterrupt:
        return answer


def _redrawn(text: str) -> str:
    """The picture over the one before, as far as the terminal has lines for it."""
    said, room = text.split("\n"), height() - 1
    if len(said) > room:
        said = [*said[: room - 1], f"... and {len(said) - room + 1} lines more"]
    return _HOME + "".join(f"{line}{_END_OF_LINE}\n" for line in said) + _BELOW
