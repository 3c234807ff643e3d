"""``warmwatch stacks``: what a rank does now, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from warmwatch.shared.record import RecordError
from warmwatch.shared.states import State
from warmwatch_monitor.client.answers import make_poller, note_missing_directory, settings_from
from warmwatch_monitor.client.choice import choose
from warmwatch_monitor.errors import NoRunError, SourceError, UsageError, WarmwatchError
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note, plain, say
from warmwatch_monitor.stacks import py_spy
from warmwatch_monitor.stacks.sources import compilers_of, left_stacks
from warmwatch_monitor.stacks.wording import at_work, heading, left_by_agent, threads
from warmwatch_monitor.status.document import status
from warmwatch_monitor.status.words.sentence import NO_RUN

if TYPE_CHECKING:
    from warmwatch_monitor.model import RankView

_MOST_RANKS = 8
_NONE_YET = (
    "warmwatch: its agent has written none of this compilation: it does a minute into one, where "
    "WARMWATCH_STACKS says nothing else, and where nothing holds the interpreter's lock"
)


@click.command()
@click.argument("run", required=False)
@click.option("--rank", metavar="N", help="This rank, whatever it does.")
@options.directory
@click.pass_context
def stacks(ctx: click.Context, /, run: str | None, rank: str | None, dir: str | None) -> None:
    """Show what the ranks of RUN are in the middle of that compile, are silent or are stalled.

    Python stacks and the compilers that are busy: through py-spy (pip install 'warmwatch[stacks]')
    where the kernel lets it, else those that the agent wrote by itself, a minute into a compilation
    and ever more rarely then. They are read here, of the records of this machine: no daemon tells
    them.

    \b
    Exit code: 0 shown
               1 there is nothing to show
               5 no run found
               2 wrong usage
    """
    number = _number(rank)
    settings = settings_from(dir=dir)
    note_missing_directory(dir)
    snapshot = make_poller(settings).poll_once()
    known = choose(status(snapshot), run, os.geteuid())
    names = {one["run"] for one in known["runs"]}
    if not names:
        raise NoRunError(NO_RUN)
    living = [view for one in snapshot.runs if one.run in names for view in one.living]
    views = _wanted(living, number)
    found = False
    for view in views[:_MOST_RANKS]:
        for line in _shown(view):
            say(plain(line))
        found = _tell(view) or found
    if len(views) > _MOST_RANKS:
        say(f"... and {len(views) - _MOST_RANKS} ranks more: --rank N shows one")
    ctx.exit(0 if found else 1)


def _number(text: str | None) -> int | None:
    if text is not None and not (text.isdecimal() and len(text) < 9):
        raise UsageError(f"--rank: {text!r} is not a rank's number")
    return None if text is None else int(text)


def _wanted(living: Sequence[RankView], number: int | None) -> list[RankView]:
    """The ranks to show. Raises WarmwatchError: there is none."""
    if not living:
        raise WarmwatchError("no rank of it lives: there is nothing to look into")
    if number is not None:
        chosen = [view for view in living if view.rank == number]
        if not chosen:
            here = ", ".join(str(view.rank) for view in living[:_MOST_RANKS])
            raise WarmwatchError(f"no living rank {number} is seen here; seen: {here}")
        return chosen
    chosen = [view for view in living if _hangs(view)]
    if not chosen:
        raise WarmwatchError(
            "no rank compiles, is silent or is stalled: --rank N shows what one is in the "
            "middle of all the same"
        )
    return chosen


def _hangs(view: RankView) -> bool:
    judged = view.judgement
    return judged.compiling or judged.state is State.STALLED or "silent" in judged.conditions


def _shown(view: RankView) -> Iterator[str]:
    """What it does, and what compiles for it."""
    yield from heading(view)
    pid = view.figures.life.pid
    yield from () if pid is None else at_work(compilers_of(pid))


def _tell(view: RankView) -> bool:
    """Its stacks; whether there are any. Where py-spy cannot look, those that the agent left."""
    why = "its process cannot be seen from here (another pid namespace)"
    pid = view.figures.life.pid
    if pid is not None:
        try:
            found = py_spy.dump(pid, stopped=view.process is not None and view.process.stopped)
        except SourceError as error:
            why = str(error)
        else:
            say("  Python stacks, by py-spy now:")
            for line in threads(found):
                say(plain(line))
            return True
    note(f"warmwatch: {plain(why)}")
    return _left(view)


def _left(view: RankView) -> bool:
    """What its agent wrote of the compilation that is in progress."""
    since = view.record.slot.compile.active_since_ns
    if not since:
        note("warmwatch: the agent writes stacks of compilations, and nothing compiles")
        return False
    try:
        left = left_stacks(view.record.folder, since)
    except FileNotFoundError:
        left = ()
    except (OSError, RecordError) as error:
        note(f"warmwatch: {plain(str(error))}")
        return False
    if not left:
        note(_NONE_YET)
        return False
    for line in left_by_agent(left, time.monotonic_ns()):
        say(plain(line))
    return True
