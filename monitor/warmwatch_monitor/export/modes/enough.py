"""When a run has told enough of its mode to be ended. Pure."""

from __future__ import annotations

from warmwatch_monitor.model import RankView, RunView

FEWEST = 10  # clean steps
LEAST_SECONDS = 3.0  # of them together
MOST_SECONDS = 30.0  # after which a step that still varies is what it is
CERTAIN = 0.01  # of its length, to each side, with 95 % certainty


def enough(run: RunView, steps: int | None = None) -> bool:
    """Whether every rank has made ``steps``, or, where none are given, is warm and steady."""
    living = run.living
    if not living or run.missing_ranges:
        return False
    if steps is not None:
        return all(view.figures.steps.count >= steps for view in living)
    return all(map(_steady, living))


def _steady(view: RankView) -> bool:
    """Nothing is left to wait for, and how long a clean step takes is known well."""
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
