"""``warmwatch stacks``: what a rank does now, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from warmwatch.shared.record import RecordError
from warmwatch.shared.states import State
from warmwatch_monitor.client.answers import make_poller, note_missing_directory, settings_from
from warmwatch_monitor.client.choice import choose
from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.errors import NoRunError, SourceError, WarmwatchError
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import as_json, note, plain, say
from warmwatch_monitor.stacks import py_spy
from warmwatch_monitor.stacks.sources import (
    compilers_of,
    dumped_stacks,
    kernel_threads,
)
from warmwatch_monitor.stacks.wording import (
    RankProcess,
    StacksDocument,
    at_work,
    by_kernel,
    heading,
    left_by_agent,
    rank_stacks,
    threads,
)
from warmwatch_monitor.status.document import status
from warmwatch_monitor.status.words.sentence import NO_RUN

if TYPE_CHECKING:
    from warmwatch_monitor.model import Compiler, RankView, Stacks

_MOST_RANKS = 8
_NONE_YET = (
    "the agent has not recorded stacks of this compilation yet. It does so after 60 s "
    "(WARMWATCH_STACKS), unless something holds the interpreter's lock"
)


@click.command()
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "--rank",
    metavar="N",
    type=options.Whole(min=0),
    help="Show this rank, in whatever state it is.",
)
@options.directory
@click.option("--json", "is_json", is_flag=True, help="Print the stacks as JSON.")
@click.pass_context
def stacks(
    ctx: click.Context, /, run: str | None, rank: int | None, dir: str | None, is_json: bool
) -> None:
    """Show the stacks of RUN's ranks that compile, are silent or are stalled.

    It shows Python stacks and busy compilers. The stacks come from py-spy (pip install py-spy) if
    the kernel permits it. Otherwise they come from the agent, which records them a minute into a
    compilation and then at growing intervals. Without both, the kernel shows whether each thread
    runs, sleeps or waits for a device. The command reads all of that on this machine; a daemon
    never sends it.

    \b
    Exit code: 0 shown
               1 no stacks to show
               5 no run found
               2 wrong usage
    """
    settings = settings_from(dir=dir)
    note_missing_directory(dir)
    snapshot = make_poller(settings).poll_once()
    known = choose(to_builtins(status(snapshot)), run, os.geteuid())
    names = {one["run"] for one in known["runs"]}
    if not names:
        raise NoRunError(NO_RUN)
    living = [view for one in snapshot.runs if one.run in names for view in one.living]
    views = _wanted(living, rank)
    left_out = max(0, len(views) - _MOST_RANKS)
    ranks = (_stacks_of(view) for view in views[:_MOST_RANKS])
    found = _print_json([*ranks], left_out) if is_json else _print(ranks, left_out)
    ctx.exit(0 if found else 1)


def _wanted(living: Sequence[RankView], number: int | None) -> list[RankView]:
    """The ranks to show. Raises WarmwatchError if there are none."""
    if not living:
        raise WarmwatchError("no rank of this run is alive")
    if number is not None:
        chosen = [view for view in living if view.rank == number]
        if not chosen:
            here = ", ".join(str(view.rank) for view in living[:_MOST_RANKS])
            raise WarmwatchError(f"no living rank {number} is seen here; seen: {here}")
        return chosen
    chosen = [view for view in living if _hangs(view)]
    if not chosen:
        raise WarmwatchError("no rank compiles, is silent or is stalled; --rank N shows any rank")
    return chosen


def _hangs(view: RankView) -> bool:
    judged = view.judgement
    return judged.compiling or judged.state is State.STALLED or "silent" in judged.conditions


def _stacks_of(view: RankView) -> RankProcess:
    """Its stacks from py-spy; if py-spy fails, those that its agent wrote."""
    pid = view.figures.life.pid
    if pid is None:
        why = "its process cannot be seen from here (another pid namespace)"
        return _left(view, (), why)
    compilers = compilers_of(pid)
    try:
        found = py_spy.dump(pid, stopped=view.process is not None and view.process.stopped)
    except SourceError as error:
        return _left(view, compilers, str(error))
    return RankProcess(view=view, compilers=compilers, present=found)


def _left(view: RankView, compilers: Sequence[Compiler], why: str) -> RankProcess:
    """The agent's stack dump of the compilation in progress."""
    left, problem = _of_agent(view)
    problems = (why,) if problem is None else (why, problem)
    pid = view.figures.life.pid
    kernel = kernel_threads(pid) if pid is not None and not left else ()
    return RankProcess(view=view, compilers=compilers, left=left, kernel=kernel, problems=problems)


def _of_agent(view: RankView) -> tuple[Sequence[Stacks], str | None]:
    since = view.record.slot.compile.active_since_ns
    if not since:
        return (), "the agent writes stacks of compilations, and none is in progress"
    try:
        left = dumped_stacks(view.record.folder, since)
    except FileNotFoundError:
        left = ()
    except (OSError, RecordError) as error:
        return (), str(error)
    return left, None if left else _NONE_YET


def _print(ranks: Iterator[RankProcess], left_out: int) -> bool:
    """Print the stacks; returns whether there were any."""
    found = False
    for rank in ranks:
        for line in _lines(rank):
            say(plain(line))
        for problem in rank.problems:
            note(f"warmwatch: {plain(problem)}")
        found = found or bool(rank.present or rank.left)
    if left_out:
        say(f"... and {left_out} ranks more: --rank N shows one")
    return found


def _lines(rank: RankProcess) -> Iterator[str]:
    yield from heading(rank.view)
    yield from at_work(rank.compilers)
    if rank.present:
        yield "  Python stacks, by py-spy now:"
        yield from threads(rank.present)
    elif rank.left:
        yield from left_by_agent(rank.left, time.monotonic_ns())
    elif rank.kernel:
        yield from by_kernel(rank.kernel)


def _print_json(processes: Sequence[RankProcess], left_out: int) -> bool:
    """Print the same as one JSON object."""
    now = time.monotonic_ns()
    ranks = [rank_stacks(one, now) for one in processes]
    say(as_json(StacksDocument(ranks=ranks, ranks_left_out=left_out)))
    return any(one.present or one.left for one in processes)
