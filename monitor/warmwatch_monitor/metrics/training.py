"""Metrics of what a rank trains: warm-ups, steps, throughput, memory, pauses."""

from __future__ import annotations

from warmwatch_monitor.metrics.families import Series, counter, gauge, gauges
from warmwatch_monitor.model import BACKENDS, MEMORY, RankView


def _data_wait(view: RankView) -> float | None:
    """Time waiting for data; not known for a training without a DataLoader."""
    steps = view.figures.steps
    return steps.batch_wait_seconds if steps.batches else None


PAUSE_SERIES: tuple[Series[RankView], ...] = (
    counter(
        "warmwatch_batches_total",
        "Batches that DataLoaders returned.",
        lambda view: view.figures.steps.batches,
    ),
    counter(
        "warmwatch_data_wait_seconds_total",
        "Time in which the training waited for batches, without evaluations; absent until one.",
        _data_wait,
    ),
    gauge(
        "warmwatch_last_batch_timestamp_seconds",
        "When a DataLoader last returned a batch.",
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
        "Time in which the training evaluated, the one in progress included; absent until the "
        "first is reported.",
        lambda view: view.figures.pauses.evaluating_seconds,
    ),
    counter(
        "warmwatch_evaluations_total",
        "Evaluations that have ended; absent until the first is reported.",
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


def _collective_timeout(view: RankView) -> dict[str, float] | None:
    """The timeout of a living rank; an ended rank does not wait."""
    who = view.figures.who
    if who.collective_timeout_seconds is None or not view.living:
        return None
    backend = who.collective_backend
    known = backend if backend in BACKENDS else "other"
    return {known or "other": who.collective_timeout_seconds}


TRAINING_SERIES: tuple[Series[RankView], ...] = (
    gauge(
        "warmwatch_warmup_seconds",
        "Length of the latest warm-up, which a recompile opens again (the first one, as in a "
        "report: warmwatch_first_warmup_seconds); absent until it ended and while it is open "
        "again.",
        lambda view: ended.seconds if (ended := view.figures.warmups.latest) else None,
    ),
    gauge(
        "warmwatch_first_warmup_seconds",
        "Length of the first warm-up, from the first compile activity to the end of its last; it "
        "stays. Absent until it ended.",
        lambda view: first.seconds if (first := view.figures.warmups.first) else None,
    ),
    gauge(
        "warmwatch_warmup_steps",
        "Steps that the latest warm-up took; absent until it ended and while it is open again.",
        lambda view: ended.steps if (ended := view.figures.warmups.latest) else None,
    ),
    gauge(
        "warmwatch_warmup_end_timestamp_seconds",
        "When the latest warm-up ended; absent until then and while it is open again.",
        lambda view: ended.ended_at if (ended := view.figures.warmups.latest) else None,
    ),
    gauge(
        "warmwatch_attach_timestamp_seconds",
        "When the agent attached to the training process.",
        lambda view: view.figures.who.attached_at,
    ),
    gauge(
        "warmwatch_world_size",
        "Ranks of the whole run by its launcher, including those on other hosts.",
        lambda view: view.figures.who.world_size,
    ),
    gauge(
        "warmwatch_expected_ranks",
        "How many ranks of the run have the agent; absent unless the user sets it.",
        lambda view: view.figures.who.expected_ranks,
    ),
    gauges(
        "warmwatch_collective_timeout_seconds",
        "Timeout of the rank's collectives, the shortest of its process groups, with that one's "
        "backend; absent where there is none.",
        "backend",
        BACKENDS,
        _collective_timeout,
    ),
    counter("warmwatch_steps_total", "Training steps.", lambda view: view.figures.steps.count),
    gauge(
        "warmwatch_last_step_timestamp_seconds",
        "When the last step ended.",
        lambda view: view.figures.steps.last_at,
    ),
    gauge(
        "warmwatch_last_step_age_seconds",
        "Time since the last step; absent before the first and once the rank has ended.",
        lambda view: view.figures.progress.last_step_age_seconds,
    ),
    gauge(
        "warmwatch_slower_ratio",
        "How many times as long a step takes as at the fastest lasting level since the warm-up; "
        "absent unless that has lasted at 1.5 or more.",
        lambda view: view.slower.ratio if view.slower else None,
    ),
    gauge(
        "warmwatch_slower_before_seconds",
        "Length of a step at the fastest lasting level, if the rank is slower now.",
        lambda view: view.slower.before if view.slower else None,
    ),
    gauge(
        "warmwatch_steady_step_seconds",
        "Length of a clean step of the whole run: their mean if they are similar or have several "
        "lengths in turn, else their median.",
        lambda view: view.figures.steps.clean.typical,
    ),
    gauge(
        "warmwatch_recent_step_seconds",
        "The real speed: median length of the clean steps of the last 60 s, 3 to 64 of them; "
        "their mean if they have several lengths in turn; with GPUs their wall time if they only "
        "queue kernels.",
        lambda view: view.figures.steps.recent_seconds,
    ),
    gauge(
        "warmwatch_stall_limit_seconds",
        "How long the rank may go without a step before it counts as stalled.",
        lambda view: view.figures.progress.stall_limit_seconds,
    ),
    gauges(
        "warmwatch_torch_memory_bytes",
        "Memory of CUDA's caching allocator, read at rare moments (the end of a compilation, "
        "warm); peaks since the program reset them. Absent until CUDA is initialized.",
        "kind",
        MEMORY,
        lambda view: view.figures.memory.bytes if view.figures.memory else None,
    ),
    counter(
        "warmwatch_tokens_total",
        "Tokens trained on: steps times the tokens of a step that the user sets.",
        lambda view: view.figures.steps.tokens,
    ),
    counter(
        "warmwatch_samples_total",
        "Samples trained on: steps times the samples of a step that the user sets.",
        lambda view: view.figures.steps.samples,
    ),
    gauge(
        "warmwatch_mfu_ratio",
        "Model FLOPs utilization at the recent speed, against the dense peak of the rank's GPUs.",
        lambda view: view.utilization.ratio if view.utilization else None,
    ),
)
