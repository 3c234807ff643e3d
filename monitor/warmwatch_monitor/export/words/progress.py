"""A rank that makes no steps and is not stuck: what is seen to move, in words. Pure.

Said from the moment on at which a rank without any such sign would count as stalled.
"""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch.verdict import State
from warmwatch_monitor.export.words import silicon
from warmwatch_monitor.export.words.pauses import pausing
from warmwatch_monitor.export.words.wording import duration
from warmwatch_monitor.model import RankView, RunView
from warmwatch_monitor.model.machine import WORKING_RATIO


def without_steps(run: RunView, speaker: RankView) -> str | None:
    """``no step for 61 s; batches go on: an evaluation?``; ``None`` where steps go on."""
    progress = speaker.figures.progress
    limit = progress.stall_limit_seconds
    if run.state is State.STALLED or not speaker.figures.steps.count or not speaker.living:
        return None
    if speaker.judgement.compiling or limit is None or progress.quiet_seconds <= limit:
        return None
    said = f"no step for {duration(progress.quiet_seconds)}"
    others = [view for view in run.living if view is not speaker]
    seen = next(_signs(speaker), None) or next(_held_up_by(others), None)
    if seen is None and any(next(_signs(view), None) for view in others):
        seen = "another rank works"
    return f"{said}; {seen}" if seen else said


def _held_up_by(others: list[RankView]) -> Iterator[str]:
    """``rank 0 is saving a checkpoint for 43 s``: they may wait for it."""
    for view in others:
        if words := pausing(view):
            yield f"rank {view.rank} is {words}"


def _signs(view: RankView) -> Iterator[str]:
    """What moves, the surest sign first."""
    if words := pausing(view):
        yield words
    progress = view.figures.progress
    batch, limit = progress.batch_quiet_seconds, progress.stall_limit_seconds
    if batch is not None and limit is not None and batch < min(limit, progress.quiet_seconds):
        yield "batches go on: an evaluation?"
    if words := silicon.computing(view.gpus):
        yield words
    if view.process is not None and (view.process.cpu_ratio or 0.0) >= WORKING_RATIO:
        yield f"the process works ({100 * (view.process.cpu_ratio or 0.0):.0f} % of a core)"
