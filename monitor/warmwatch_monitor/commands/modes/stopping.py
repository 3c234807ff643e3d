"""When the run of a mode may stop, because it has shown enough, and how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple

from warmwatch.shared.phrases import duration
from warmwatch_monitor.commands.compare.comparison import EAGER, runs_of
from warmwatch_monitor.model import RankView, RunView

if TYPE_CHECKING:
    from warmwatch_monitor.commands.modes.table import Tried

FEWEST = 10  # clean steps
LEAST_SECONDS = 3.0  # of them together
MOST_SECONDS = 30.0  # of clean steps, even if their median is still uncertain
CERTAIN = 0.01  # relative half-width of the median's 95 % confidence interval
NEAR = 0.02  # relative difference of two runs of one program


def enough(run: RunView, steps: int | None = None, least: int = 0) -> bool:
    """Whether every rank has made ``steps``, or without that number is warm and steady.

    ``least``: and has made so many steps.
    """
    living = run.living
    if not living or run.missing_ranges:
        return False
    if any(view.figures.steps.count < least for view in living):
        return False
    if steps is not None:
        return all(view.figures.steps.count >= steps for view in living)
    return all(map(_steady, living))


def _steady(view: RankView) -> bool:
    """Whether the rank is warm, and the length of a clean step is known well enough."""
    clean = view.figures.steps.clean
    if not view.judgement.warm or view.judgement.compiling:
        return False
    if (clean.count or 0) < FEWEST or (clean.sum_seconds or 0.0) < LEAST_SECONDS:
        return False
    if (clean.sum_seconds or 0.0) >= MOST_SECONDS:
        return True
    if not clean.median or clean.median_low is None or clean.median_high is None:
        return False
    return (clean.median_high - clean.median_low) / 2 <= CERTAIN * clean.median


def left(run: RunView, steps: int | None = None, least: int = 0) -> float | None:
    """Seconds until the run has made ``steps``; ``None`` while that is unknown.

    Without ``steps`` it is: how soon the length of a step is certain depends on the next steps.
    """
    each = [_left(view, max(steps, least)) for view in run.living] if steps is not None else []
    values = [value for value in each if value is not None]
    return max(values) if values and len(values) == len(each) else None


def _left(view: RankView, steps: int) -> float | None:
    clean, made = view.figures.steps.clean, view.figures.steps.count
    if view.judgement.compiling or not clean.median:
        return None
    return max(0.0, (steps - made) * clean.median)


def apart(mode: str, tried: Sequence[Tried]) -> bool:
    """Whether the runs of ``mode`` differ so that a third one is worth its time.

    Student's t is 12.7 for two runs of each program and 4.3 for three. Runs that were slowed show
    nothing. If one of two was, a third may make two; if both were, it would be, too.
    """
    runs = runs_of([item.summary for item in tried if item.mode == mode and item.summary])
    values = [log(run.seconds) for run in runs if run.disturbed is None]
    if len(values) == 1:
        return len(runs) > 1
    return len(values) > 1 and max(values) - min(values) > NEAR


class Expected(NamedTuple):
    """How long a mode takes. ``at_least``: it compiles more than any mode so far."""

    seconds: float
    at_least: bool

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'about'} {duration(self.seconds)}"


def expected(mode: str, tried: Sequence[Tried]) -> Expected | None:
    """How long a mode takes, from modes that compile no more; ``None`` for the first."""
    trieds = [item for item in tried if _effort(item.mode) <= _effort(mode)]
    if not trieds:
        return None
    more = all(_effort(item.mode) < _effort(mode) for item in trieds)
    return Expected(max(item.seconds for item in trieds), at_least=more)


def _effort(mode: str) -> int:
    """How much a mode compiles: 0 eager, 2 with kernels chosen by measuring."""
    return 0 if mode == EAGER else 2 if mode.startswith("max-autotune") else 1
