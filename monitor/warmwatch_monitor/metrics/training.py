"""Metrics of what a rank trains: warm-ups, steps, throughput, memory, pauses.

Names, types, labels and texts are those of ``figures/training.py`` and of the model.
"""

from __future__ import annotations

from operator import attrgetter

from warmwatch_monitor.figures.rank import Slower
from warmwatch_monitor.figures.training import BACKENDS, Mfu, Pauses, TypicalStep, Warmup
from warmwatch_monitor.metrics.families import Series, gauge, series_of, shared
from warmwatch_monitor.model import Memory, Progress, RankView, Steps, Stretch, Who


def _data_wait(view: RankView) -> float | None:
    """Not known for a training without a DataLoader."""
    steps = view.figures.steps
    return steps.batch_wait_seconds if steps.batches else None


def _collective_timeout(view: RankView) -> dict[str, float] | None:
    """The timeout of a living rank; an ended rank does not wait."""
    who = view.figures.who
    if who.collective_timeout_seconds is None or not view.living:
        return None
    backend = who.collective_backend
    name = backend if backend in BACKENDS else "other"
    return {name or "other": who.collective_timeout_seconds}


TRAINING_SERIES: tuple[Series[RankView], ...] = (
    *series_of(Warmup, attrgetter("figures.warmups.latest")),
    gauge(
        "warmwatch_first_warmup_seconds",
        "Length of the first warm-up, from the first compile activity to the end of its last; it "
        "stays. Absent until it ended.",
        lambda view: first.seconds if (first := view.figures.warmups.first) else None,
    ),
    *series_of(
        Who,
        attrgetter("figures.who"),
        {"collective_timeout_seconds": _collective_timeout},
    ),
    *series_of(Steps, attrgetter("figures.steps"), {"batch_wait_seconds": _data_wait}),
    *series_of(Progress, attrgetter("figures.progress")),
    *series_of(Stretch, attrgetter("figures.progress.stretch")),
    *series_of(Slower, attrgetter("slower")),
    shared(TypicalStep, attrgetter("figures.steps.clean.typical")),
    *series_of(Memory, attrgetter("figures.memory")),
    shared(Mfu, lambda view: view.utilization.ratio if view.utilization else None),
    *series_of(Pauses, attrgetter("figures.pauses")),
)
