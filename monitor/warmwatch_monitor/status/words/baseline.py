"""The eager baseline and what compiling gained, in words. Pure."""

from __future__ import annotations

from warmwatch.shared.phrases import baseline_words
from warmwatch_monitor.model import Figures, gain
from warmwatch_monitor.output.wording import counted, exact_length


def in_progress(figures: Figures) -> str:
    """``baseline: step 7 of 20, eager on purpose``; empty where it is over, or there is none."""
    baseline = figures.baseline
    if baseline is None or figures.steps.count >= baseline.steps:
        return ""
    return baseline_words(figures.steps.count, baseline.steps)


def brought(figures: Figures) -> str:
    """``1.8x as fast as eager; break-even at step 1,016``; empty where that is not known."""
    known = gain(figures)
    return "" if known is None else gained(known.speed_up, known.paid_back_at)


def gained(speed_up: float, paid_back_at: int | None) -> str:
    """How many times as fast as eager compiled steps are, and where that has paid."""
    fast = f"{speed_up:.2g}x as fast as eager"
    if speed_up <= 1:
        return f"{fast}, so compiling never breaks even"
    return fast if paid_back_at is None else f"{fast}; break-even at step {paid_back_at:,}"


def measured(figures: Figures) -> str:
    """What the baseline came to; empty where there is none, or it is not over."""
    baseline = figures.baseline
    if baseline is None or baseline.seconds is None:
        return ""
    steps = counted(baseline.steps, "step")
    return f"the first {steps} ran eagerly on purpose, {exact_length(baseline.seconds)} each"
