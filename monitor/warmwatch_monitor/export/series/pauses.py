"""The series of what a training waited for that is no compilation: data, checkpoints, evaluations.

Names, types and labels are public.
"""

from __future__ import annotations

from warmwatch_monitor.export.series.table import Series, counter, gauge
from warmwatch_monitor.model import RankView


def _data_wait(view: RankView) -> float | None:
    """Of a training that asks no DataLoader, nobody knows how long it waits for its data."""
    steps = view.figures.steps
    return steps.batch_wait_seconds if steps.batches else None


PAUSE_SERIES: tuple[Series[RankView], ...] = (
    counter(
        "warmwatch_batches_total",
        "Batches that DataLoaders handed out to the training.",
        lambda view: view.figures.steps.batches,
    ),
    counter(
        "warmwatch_data_wait_seconds_total",
        "Time in which the training waited for the next batch; absent until there was one.",
        _data_wait,
    ),
    gauge(
        "warmwatch_last_batch_timestamp_seconds",
        "When the last batch was handed out.",
        lambda view: view.figures.steps.last_batch_at,
    ),
    counter(
        "warmwatch_checkpoint_seconds_total",
        "Time in which the training saved checkpoints and waited for it, the one in progress "
        "included.",
        lambda view: view.figures.pauses.saving_seconds,
    ),
    gauge(
        "warmwatch_checkpoint_start_timestamp_seconds",
        "When the save in progress began; absent where none is.",
        lambda view: view.figures.pauses.saving_since,
    ),
    counter(
        "warmwatch_evaluation_seconds_total",
        "Time in which the training evaluated, the one in progress included; absent until one was "
        "told of.",
        lambda view: view.figures.pauses.evaluating_seconds,
    ),
    counter(
        "warmwatch_evaluations_total",
        "Evaluations that have ended; absent until one was told of.",
        lambda view: view.figures.pauses.evaluations,
    ),
    gauge(
        "warmwatch_evaluation_start_timestamp_seconds",
        "When the evaluation in progress began; absent where none is.",
        lambda view: view.figures.pauses.evaluating_since,
    ),
    gauge(
        "warmwatch_between_cells_start_timestamp_seconds",
        "When the last cell of the notebook ended; absent while one runs, and without a notebook.",
        lambda view: view.figures.pauses.between_cells_since,
    ),
)
