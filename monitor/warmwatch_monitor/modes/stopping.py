"""When the run of a mode may stop, because it has shown enough, and how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple

from warmwatch.shared.phrases import duration
from warmwatch_monitor.compare.comparison import EAGER, runs_of
from warmwatch_monitor.model import RankView, RunView

if TYPE_CHECKING:
    from warmwatch_monitor.modes.table import Tried

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
    """Seconds until ``enough``; ``None`` while that is unknown, as in a compilation."""
    each = [_left(view, steps, least) for view in run.living]
    known = [one for one in each if one is not None]
    return max(known) if known and len(known) == len(each) else None


def _left(view: RankView, steps: int | None, least: int) -> float | None:
    clean, made = view.figures.steps.clean, view.figures.steps.count
    if view.judgement.compiling or not clean.median or not clean.count:
        return None
    rest = max(0.0, (max(steps or 0, least) - made) * clean.median)
    if steps is not None:
        return rest
    if not view.judgement.warm:
        return None
    took = clean.sum_seconds or 0.0
    longest = max(0.0, MOST_SECONDS - took)
    if clean.median_low is None or clean.median_high is None:
        return max(rest, longest)
    # an interval narrows with the square root of the number of steps
    off = (clean.median_high - clean.median_low) / 2 / clean.median
    certain = clean.count * ((off / CERTAIN) ** 2 - 1) * clean.median
    return max(rest, min(longest, max(0.0, LEAST_SECONDS - took, certain)))


def apart(mode: str, tried: Sequence[Tried]) -> bool:
    """Whether the runs of ``mode`` differ so that a third one is worth its time.

    Student's t is 12.7 for two runs of each program and 4.3 for three. Runs that other work slowed
    show nothing, and neither would a third one.
    """
    runs = runs_of([one.summary for one in tried if one.mode == mode and one.summary])
    known = [log(one.seconds) for one in runs if one.disturbed is None]
    return len(known) > 1 and max(known) - min(known) > NEAR


class Expected(NamedTuple):
    """How long a mode takes. ``at_least``: it compiles more than any mode so far."""

    seconds: float
    at_least: bool

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'about'} {duration(self.seconds)}"


def expected(mode: str, tried: Sequence[Tried]) -> Expected | None:
    """How long a mode takes, from modes that compile no more; ``None`` for the first."""
    known = [one for one in tried if _effort(one.mode) <= _effort(mode)]
    if not known:
        return None
    more = all(_effort(one.mode) < _effort(mode) for one in known)
    return Expected(max(one.seconds for one in known), at_least=more)


def _effort(mode: str) -> int:
    """How much a mode compiles: 0 eager, 2 with kernels chosen by measuring."""
    return 0 if mode == EAGER else 2 if mode.startswith("max-autotune") else 1
