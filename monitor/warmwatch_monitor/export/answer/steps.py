"""What is known of a rank's steps, and of what delays them, in the ``/status`` answer."""

from __future__ import annotations

from typing import Any

from warmwatch_monitor.export.words.long_steps import is_evaluation, words
from warmwatch_monitor.model import (
    Figures,
    LongStep,
    RankView,
    Slower,
    Steps,
    Warmups,
    WarmupSpan,
    beyond_steady_seconds,
    gain,
)


def warmup(warmups: Warmups) -> dict[str, Any]:
    """The latest warm-up, how many there were, and the first one."""
    return {
        "ended": warmups.latest is not None,
        **warmup_span(warmups.latest),
        "count": warmups.count,
        "first": None if warmups.first is None else warmup_span(warmups.first),
    }


def warmup_span(span: WarmupSpan | None) -> dict[str, Any]:
    """How long a warm-up was; each is null where it has not ended."""
    if span is None:
        return {"ended_at": None, "seconds": None, "steps": None}
    return {"ended_at": span.ended_at, "seconds": span.seconds, "steps": span.steps}


def step_seconds(steps: Steps) -> dict[str, float | int | None]:
    """How long single steps and the clean ones took."""
    return {
        "first": steps.first_seconds,
        "first_at": steps.first_at,
        "last": steps.last_seconds,
        "recent": steps.recent_seconds,
        "recent_steps": steps.recent_count,
        "median": steps.clean.median,
        "p99": steps.clean.p99,
        "typical": steps.clean.typical,
        "median_low": steps.clean.median_low,
        "median_high": steps.clean.median_high,
        "clean_count": steps.clean.count,
        "clean_seconds": steps.clean.sum_seconds,
    }


def long_step(one: LongStep) -> dict[str, Any]:
    """A step that came far later than usual and did not compile, and what is known of it."""
    return {
        "step": one.step,
        "seconds": one.seconds,
        "usual_seconds": one.usual_seconds,
        "checkpoint_seconds": one.saving_seconds,
        "evaluation_seconds": one.evaluating_seconds,
        "between_cells_seconds": one.between_cells_seconds,
        "data_seconds": one.data_seconds,
        "batches": one.batches,
        "evaluation": is_evaluation(one) or one.evaluating_seconds > 0,
        "words": words(one),
    }


def slower(known: Slower) -> dict[str, Any]:
    """How a rank is slower than it was since its warm-up."""
    return {
        "ratio": known.ratio,
        "seconds": known.seconds,
        "before": known.before,
        "since_step": known.since_step,
        "causes": list(known.causes),
    }


def batches(steps: Steps) -> dict[str, Any] | None:
    """What the DataLoaders gave, and how long the loop waited for it: without any, nobody knows."""
    if steps.batches is None:
        return None
    waited = steps.batch_wait_seconds if steps.batches else None
    return {"count": steps.batches, "wait_seconds": waited}


def pauses(view: RankView) -> dict[str, Any]:
    """What the training waited for that is no compilation."""
    known, given = view.figures.pauses, batches(view.figures.steps)
    return {
        "data_seconds": given["wait_seconds"] if given else None,
        "checkpoint_seconds": known.saving_seconds,
        "saving_since": known.saving_since,
        "evaluations": known.evaluations,
        "evaluation_seconds": known.evaluating_seconds,
        "evaluating_since": known.evaluating_since,
        "between_cells_since": known.between_cells_since,
    }


def cost(steps: Steps) -> dict[str, float | int | None]:
    """What the compiler cost so far: how much longer than clean steps the touched ones took."""
    return {
        "first_step_seconds": steps.first_seconds,
        "steady_step_seconds": steps.clean.median,
        "beyond_steady_seconds": beyond_steady_seconds(steps),
        "steps_touched": steps.touched.count,
    }


def baseline(figures: Figures) -> dict[str, float | int | None] | None:
    """The first steps, where they were eager on purpose, and what compiling brought since."""
    eager, known = figures.baseline, gain(figures)
    if eager is None:
        return None
    return {
        "steps": eager.steps,
        "seconds": eager.seconds,
        "speed_up": known.speed_up if known else None,
        "break_even_steps": known.break_even_steps if known else None,
        "paid_back_at_step": known.paid_back_at if known else None,
    }
