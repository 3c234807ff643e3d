"""``warmwatch compare``: runs side by side, and their break-even.

Other starts in the history show how far runs of one program differ. Neighbours ran on the same host
at the same time, so their load is within its times; programs without a record are not known.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from itertools import combinations, islice
from typing import NamedTuple

import click

from warmwatch_monitor.base.errors import StoreError, UsageError
from warmwatch_monitor.base.settings import load_history_settings
from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.client.summaries import as_written, run_summaries
from warmwatch_monitor.commands.compare.comparability import STEADY, incomparable
from warmwatch_monitor.commands.compare.comparison import Neighbour, Run, mode_of, runs_of, step_of
from warmwatch_monitor.commands.compare.comparison import compare as compare_all
from warmwatch_monitor.commands.compare.wording import page
from warmwatch_monitor.commands.report.assembly import report
from warmwatch_monitor.commands.report.command import show
from warmwatch_monitor.history.comparability import program_name
from warmwatch_monitor.history.listing import Listed, RunQuery
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.history.summaries import provenance, summarize_run
from warmwatch_monitor.model.run_summary import RunSummary, slowest_of
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note, plain, say
from warmwatch_monitor.output.json_text import as_json

# starts of its name that are listed, loaded and used: a summary of many ranks is large
_LISTED, _LOADED, MOST_STARTS = 40, 10, 5
_FEWEST = 10  # clean steps that show the speed of another start
_MOST_BESIDE = 1_000  # neighbours of a run; more than that many are not looked at
_LEAST_SHARE = 0.05  # of its time: a shorter neighbour changes no median


class Others(NamedTuple):
    """By the id of each compared run: the runs of its program, and its neighbours, the longest
    first. ``same``: the ids of each two compared runs of one program."""

    programs: Mapping[str, tuple[Run, ...]]
    neighbours: Mapping[str, tuple[Neighbour, ...]]
    same: frozenset[frozenset[str]]


def others(compared: Sequence[RunSummary], recorded: Snapshot, *, history: bool) -> Others:
    """``recorded``: the runs that have a record. ``history``: whether the history is read too.

    The runs of a program do not depend on what else is compared.
    """
    names = {program_name(item) for item in compared}
    seen = [
        summarize_run(run, recorded)
        for run in recorded.starts
        if (provenance(run).unnumbered or run.who.name or run.run) in names
    ]
    settings = load_history_settings(os.environ)
    store = Store(settings) if history and settings.directory is not None else None
    programs: dict[str, tuple[Run, ...]] = {}
    beside: dict[str, tuple[Neighbour, ...]] = {}
    try:
        for summary in compared:
            starts = [summary, *_other_starts(summary, seen, store)]
            if store is not None:
                beside |= {start.id: _beside(start, store) for start in starts}
            programs[summary.id] = runs_of(starts, beside)
    except StoreError as error:
        note(f"warmwatch: other runs in the history are not known: {plain(str(error))}")
    same = (pair for pair in combinations(compared, 2) if is_same_program(*pair))
    return Others(programs, beside, frozenset(frozenset(run.id for run in pair) for pair in same))


def _other_starts(
    run: RunSummary, seen: Sequence[RunSummary], store: Store | None
) -> list[RunSummary]:
    """The newest other starts of the program of ``run``."""
    if step_of(run) is None:
        return []
    runs = {each.id: each for each in seen}
    if store is not None:
        name = program_name(run)
        numbered = RunQuery(name=f"{glob.escape(name)}-[0-9]*", limit=_LISTED)
        queries = RunQuery(called=name, limit=_LISTED), numbered
        listed = (each for query in queries for each in store.readable(query))
        likely = [each for each in listed if each.id != run.id and _may_be(run, each)]
        likely.sort(key=lambda each: each.began, reverse=True)
        runs |= {each.id: each for each in store.summaries([each.id for each in likely[:_LOADED]])}
    runs.pop(run.id, None)
    newest = sorted(runs.values(), key=lambda each: each.began, reverse=True)
    same = (each for each in newest if _shows_speed(each) and is_same_program(run, each))
    return list(islice(same, MOST_STARTS))


def _shows_speed(run: RunSummary) -> bool:
    """Whether it made enough clean steps."""
    return bool(run.ranks) and (report(run).steady.count or 0) >= _FEWEST


def _may_be(run: RunSummary, other: Listed) -> bool:
    """Whether it can be the same program, from its list entry."""
    mine = (run.owner, run.host, run.what.world_size, run.what.torch, run.what.commit)
    return mine == (other.owner, other.host, other.world_size, other.torch, other.commit)


def is_same_program(run: RunSummary, other: RunSummary) -> bool:
    """Whether both ran one program on one host in one mode, as far as recorded.

    Arguments are not recorded; the number of operations of a step may show another batch.
    """
    if None in (step_of(run), step_of(other)) or (program_name(run), run.owner, run.host) != (
        program_name(other),
        other.owner,
        other.host,
    ):
        return False
    mine, theirs = report(run), report(other)
    if mode_of(mine) != mode_of(theirs):
        return False
    differing = incomparable((run, other), (mine, theirs))
    work = {_operations(run), _operations(other)} - {None}
    return len(work) < 2 and not any(STEADY in each.rows for each in differing)


def _operations(summary: RunSummary) -> float | None:
    worth = slowest_of(summary).answer["worth"] or {}
    operations: float | None = worth.get("flops_per_step")
    return operations


def _beside(run: RunSummary, store: Store) -> tuple[Neighbour, ...]:
    if run.host is None:
        return ()
    query = RunQuery(since=run.began, until=_end(run), limit=_MOST_BESIDE)
    others = (
        Neighbour(run=each.run, id=each.id, share=share)
        for each in store.readable(query)
        if each.id != run.id
        and each.host == run.host
        and (share := _share(run, each)) >= _LEAST_SHARE
    )
    return tuple(sorted(others, key=lambda each: -each.share))


def _share(run: RunSummary, other: Listed) -> float:
    """The share of the time of ``run`` in which ``other`` ran too."""
    common = min(_end(run), _end(other)) - max(run.began, other.began)
    return max(0.0, common) / max(1e-9, _end(run) - run.began)


def _end(run: RunSummary | Listed) -> float:
    return run.ended if run.ended is not None else run.seen


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
        made = plain(compare_all(summaries, **item._asdict()))
    if is_json:
        say(as_json(made))
        return
    show(page(made), markdown=markdown)
