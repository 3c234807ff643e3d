"""Metrics of ended ranks and runs.

Labels are closed lists: the exit code is 0 to 255, and exceptions have no text.
"""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch.shared.verdict import State
from warmwatch_monitor.metrics.families import Family, Labels
from warmwatch_monitor.model import RankView, Snapshot


def families(snapshot: Snapshot) -> Iterator[Family]:
    """Every family of the ends in ``snapshot``, those without a sample too."""
    ended = Family(
        name="warmwatch_end",
        help="How the rank ended; its exit code where it is known.",
        type="info",
    )
    killed = Family(
        name="warmwatch_oom_killed",
        help="Whether the kernel killed the lost rank for want of memory; absent where unknown.",
        type="gauge",
    )
    together = Family(
        name="warmwatch_run_ended_together",
        help="Whether all ranks of the run that this host has ended within seconds; absent where "
        "none has, and where that is not known.",
        type="gauge",
    )
    for run in snapshot.runs:
        together.add(Labels({"run": run.run}), run.ended_together)
        for view in run.ranks:
            who = {"run": run.run, "rank": str(view.rank)}
            if how := end_of(view):
                ended.add(Labels({**who, "end": how, "exit_code": _exit_code(view)}), 1)
            killed.add(Labels(who), view.oom_killed)
    yield ended
    yield killed
    yield together


def end_of(view: RankView) -> str | None:
    """``lost``, or the end that the rank recorded; ``None`` while it lives."""
    if view.living:
        return None
    if view.judgement.state is not State.FINISHED:
        return str(view.judgement.state.value)
    return view.figures.life.end


def _exit_code(view: RankView) -> str:
    code = view.figures.life.exit_code
    return "" if code is None else str(code)
