"""The headline of all runs, and of trainings without the agent.

Every state and number comes from the Snapshot; this module only has the words. Those of a run are
in ``run.py``, which is loaded with the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warmwatch.shared.phrases import counted
from warmwatch.shared.states import ENDED
from warmwatch_monitor.base.errors import NO_RECENT_RUN
from warmwatch_monitor.figures.declared import Kind
from warmwatch_monitor.model.machine import AGREEING, ObservedTraining, Signs
from warmwatch_monitor.model.snapshot import Snapshot, incomplete
from warmwatch_monitor.output.summary import (
    HOW_TO_ATTACH,
    LIKELY,
    TO_BE_SEEN,
    WHEN_SEEN,
    Clause,
    Headline,
    RunWords,
    headline,
    several,
    shortened,
)

_AWAITED = "waiting for the first step or compilation of the command"
NO_RUN = f"{NO_RECENT_RUN}; {TO_BE_SEEN}"

_RECORDS = "records"


def answer(snapshot: Snapshot) -> Headline:
    """The headline of all runs: living runs first, the least advanced of them before the others."""
    if snapshot.awaited and _unread(snapshot) is None:
        ended = sum(run.state in ENDED for run in snapshot.runs)
        if ended == len(snapshot.runs):
            earlier = f"earlier: {counted(ended, 'ended run')}" if ended else ""
            clauses = (Clause(earlier, Kind.NOTE), Clause(WHEN_SEEN, Kind.REMEDY))
            return headline("", Clause(_AWAITED, Kind.STATE), clauses)
    if not snapshot.runs:
        if (problem := _unread(snapshot)) is not None:
            unknown = "the runs are not known, because their records cannot be read"
            head = Clause(unknown, Kind.STATE)
            return headline("", head, [Clause(problem, Kind.REASON, joint=": ")])
        if (problem := incomplete(snapshot)) is not None:
            return headline("", Clause(f"{problem}; no run is known so far", Kind.STATE), [])
        if snapshot.observed:
            return _unattached(snapshot.observed)
        head = Clause(f"{NO_RECENT_RUN}; {HOW_TO_ATTACH}", Kind.STATE)
        return headline("", head, [Clause(WHEN_SEEN, Kind.REMEDY)])
    from warmwatch_monitor.status.words.run import brief, run_answer  # loaded with the first run

    parts = (RunWords(run.run, run.state, brief(run), run_answer(run)) for run in snapshot.runs)
    return several(parts, unread=_unread(snapshot) is not None)


def summary(snapshot: Snapshot) -> str:
    """The headline of all runs, without its details."""
    return answer(snapshot).summary


def _unread(snapshot: Snapshot) -> str | None:
    """Why the records cannot be read; ``None`` if they can, even if there are none."""
    return next(
        (
            source.error
            for source in snapshot.sources
            if source.source == _RECORDS and not source.up
        ),
        None,
    )


ATTACH = 'add "import warmwatch.auto" to its script to know'


def unattached_evidence(training: ObservedTraining) -> list[str]:
    """The known signs of the last poll; nothing before the first."""
    polls = training.polls
    if not polls:
        return []
    few = [f"{counted(polls, 'poll')} cannot show it; see status --watch"]
    return [*_signs(training.signs), *(few if polls < AGREEING else ())]


def _signs(signs: Signs) -> Iterator[str]:
    if signs.gpu_ratio is not None:
        power = "" if signs.watts is None else f", {signs.watts:.0f} W"
        idle = "" if signs.idle_watts is None else f" (idle {signs.idle_watts:.0f} W)"
        yield f"its GPU at {100 * signs.gpu_ratio:.0f} %{power}{idle}"
    if signs.workers_busy is not None and signs.workers_idle is not None:
        alive = signs.workers_busy + signs.workers_idle
        busy = f"{signs.workers_busy} of {counted(alive, 'compile worker')} busy"
        yield busy if alive else "no compile workers"
    if signs.cpu_ratio is not None:
        yield f"the process uses {100 * signs.cpu_ratio:.0f} % of a core"


def _unattached(trainings: Sequence[ObservedTraining]) -> Headline:
    """The headline if no run is known but these processes look like trainings."""
    first = trainings[0]
    more = len(trainings) - 1
    looks = f" and {more} more look like trainings" if more else " looks like a training"
    command = shortened(first.command or "a process")
    return headline(
        "",
        Clause(f"{NO_RECENT_RUN}, but {command} (pid {first.pid}){looks}", Kind.STATE),
        [
            Clause(f"it has no agent and {LIKELY[first.likely_compiling]}", Kind.REASON),
            *(Clause(text, Kind.CONTEXT) for text in unattached_evidence(first)),
            Clause(ATTACH, Kind.REMEDY),
        ],
    )
