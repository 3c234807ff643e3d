"""What ``warmwatch doctor -- CMD`` checks: the time of guard checks in each step of a training.

A training that already runs cannot receive a request. The agent opens no socket, and has no thread
while a training is warm: it would have to look for a request at each step. So this runs CMD itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from warmwatch.shared.phrases import took
from warmwatch_monitor.commands.doctor.checks import Finding, fine, noted
from warmwatch_monitor.commands.launch import startable
from warmwatch_monitor.commands.modes.child_process import counted_signals
from warmwatch_monitor.commands.modes.command import script_name
from warmwatch_monitor.commands.modes.one_mode import AS_IS, Plan, Progress, attempt
from warmwatch_monitor.commands.modes.table import GUARD_SHARE, Tried
from warmwatch_monitor.model.run_summary import RankSummary

_SECONDS = 3600.0


def guard_checks(command: tuple[str, ...]) -> tuple[Finding, int]:
    """Run ``command`` until guard checks are measured; the finding, which is never a problem, and
    the exit code if a signal interrupted it, else 0."""
    with startable(command), counted_signals() as stops:
        plan = Plan(mode=AS_IS, name=script_name(command), timeout=_SECONDS, losses=True)
        tried = attempt(command, plan, {}, stops, Progress("measuring guard checks", sys.stderr))
    return finding(tried), 128 + stops.last if stops.last else 0


def finding(tried: Tried) -> Finding:
    """The time of guard checks, or why it is unknown."""
    ranks = tried.summary.ranks if tried.summary else ()
    share = tried.guard_share
    if not tried.guard_seconds or not share:
        what = f"the time of guard checks is unknown: {_why(tried, ranks)}"
        return noted(what)
    text = f"guard checks take {took(tried.guard_seconds)} of each step ({100 * share:.2g} %)"
    if share <= GUARD_SHARE:
        return fine(text)
    most = max(tried.guard_frames, key=lambda frame: tried.guard_frames[frame], default=None)
    if most is not None:
        text += f", {took(tried.guard_frames[most])} of it in {_function(most, ranks)}"
    return noted(text, advice="fewer, larger graphs have fewer guards")


def _why(tried: Tried, ranks: Sequence[RankSummary]) -> str:
    if tried.ended_by == "interrupted":
        return "interrupted"
    if tried.ended_by in ("itself", "timeout"):
        failed = f" with exit code {tried.code}" if tried.code else ""
        return f"the training ended{failed} before they were measured"
    if not any(rank.compiled for rank in ranks):
        return "nothing was compiled"
    if tried.guard_seconds == 0:
        return "no compiled code ran while they were measured"
    return "no scalar was passed to backward(), or the training uses a profiler"


def _function(frame: str, ranks: Sequence[RankSummary]) -> str:
    """Name and place of a frame, by its number in the compile ids."""
    for compilation in (compiled for rank in ranks for compiled in rank.compiled):
        if str(compilation.id).partition("/")[0] == frame and compilation.name:
            return f"{compilation.name} ({compilation.file}:{compilation.line})"
    return f"frame {frame}"
