"""Figures of what a rank trains: steps, warm-ups, pauses, throughput, its identity.

Those that the pipeline has in one struct and ``/status`` in another are types of their own.
"""

from typing import Annotated, Literal

from msgspec import Struct

from warmwatch.shared.values import MEMORY
from warmwatch_monitor.figures.declared import Epoch, Number, Seconds, figure

# origins of the operations of a step
FORMULA, COUNTED = "6 x parameters x tokens", "counted in the compiled graphs"
BACKENDS = ("nccl", "gloo", "mpi", "ucc", "xccl", "hccl", "other")
Trend = Literal["faster", "slower"]

AttachedAt = Annotated[
    Epoch | None,
    figure("attach_timestamp_seconds", text="When the agent attached to the training process."),
]
StateSince = Annotated[
    Epoch | None,
    figure(
        "state_start_timestamp_seconds",
        text="When the present state began; absent if it is unknown.",
    ),
]
LastStepAge = Annotated[
    Seconds | None,
    figure(
        "last_step_age_seconds",
        text="Time since the last step; absent before the first and once the rank has ended.",
    ),
]
WorldSize = Annotated[
    int | None,
    figure(
        "world_size",
        text="Ranks of the whole run by its launcher, including those on other hosts.",
    ),
]
CollectiveTimeout = Annotated[
    Seconds | None,
    figure(
        "collective_timeout_seconds",
        label="backend",
        values=BACKENDS,
        text="Timeout of the rank's collectives, the shortest of its process groups, with that "
        "one's backend; absent if it has none.",
    ),
]
StepCount = Annotated[int, figure("steps_total", text="Training steps so far.")]
RecentStep = Annotated[
    Seconds | None,
    figure(
        "recent_step_seconds",
        text="The real speed: median length of the clean steps of the last 60 s, 3 to 64 of them; "
        "their mean if they have several lengths in turn. As soon as 3 followed the last compile "
        "activity, only those count, and right after a sudden change only the newest. With GPUs it "
        "is their wall time if they only queue kernels. Absent before.",
    ),
]
TypicalStep = Annotated[
    Seconds | None,
    figure(
        "steady_step_seconds",
        text="Length of a clean step of the whole run: mean of the clean steps if they are "
        "similar, or if over an eighth have another length than the rest (a sixteenth, if it takes "
        "over half of the time); else their median. Absent before the first clean step.",
    ),
]
BATCHES = figure("batches_total", text="Batches that DataLoaders returned so far.")
DataWait = Annotated[
    Seconds | None,
    figure(
        "data_wait_seconds_total",
        text="Time in which the training waited for batches of DataLoaders, except in evaluations; "
        "absent before the first batch.",
    ),
]
Mfu = Annotated[
    Number | None,
    figure(
        "mfu_ratio",
        text="Model FLOPs utilization at the recent speed: the operations of a step, over its "
        "length, over what the rank's GPUs can do; absent if one of these is unknown.",
    ),
]
TORCH_MEMORY = figure(
    "torch_memory_bytes",
    label="kind",
    values=MEMORY,
    text="Memory of CUDA's caching allocator, read at rare moments (the end of a compilation, "
    "warm); peaks since the program reset them. Absent before CUDA is initialized, and without "
    "statistics.",
)


class PublishedSteps(Struct, frozen=True, kw_only=True):
    """Lengths of the newest steps and of the first, as ``/status`` has them, too."""

    first: Seconds | None = None
    """Length of step 1, from its first compile activity; without an evaluation before it. Null if
    nothing compiled.
    """
    first_at: Epoch | None = None
    """When the first step ended; null before it."""
    last_at: Annotated[Epoch | None, figure("last_step_timestamp_seconds")] = None
    """When the last step ended."""
    last: Seconds | None = None
    """Length of the last step."""
    last_second: Seconds | None = None
    """Mean length of the clean steps of about the last second, or of the last two if they are
    longer: what charts show over time. Null if something compiled in all of them. From
    Prometheus, as `recent`.
    """
    recent: RecentStep = None
    recent_steps: int | None = None
    """Number of steps in `recent`."""
    settled: bool | None = None
    """Whether `recent` is the speed: enough clean steps have come since the last compile activity,
    and they get neither faster nor slower. Null without steps, and from Prometheus.
    """
    newest: Seconds | None = None
    """If they do: the median of the newest of these steps."""
    newest_steps: int | None = None
    """Number of steps in `newest`."""
    trend: Trend | None = None
    """If they do: which of the two."""


class EagerSteps(Struct, frozen=True, kw_only=True):
    """Eager steps at the start, run on request: the eager baseline."""

    steps: int
    """Number of baseline steps: as requested, then as they were."""
    seconds: Seconds | None = None
    """Median of the baseline steps; null before the last one."""


class Baseline(EagerSteps, frozen=True, kw_only=True):
    """Eager steps at the start, run on request, and the gain from compiling."""

    speed_up: Number | None = None
    """Length of an eager step divided by that of a clean step; null before it was warm."""
    break_even_steps: int | None = None
    """Steps after the baseline until compiling has paid off; null if clean steps are not faster."""
    paid_back_at_step: int | None = None
    """The step at which compiling has paid off; null before."""


class WarmupSpan(Struct, frozen=True, kw_only=True):
    """A warm-up that has ended; all null if none has."""

    ended_at: Epoch | None = None
    """When its last compile activity ended."""
    seconds: Seconds | None = None
    """From its first compile activity to the end of its last."""
    steps: int | None = None
    """Steps within it."""


class Warmup(WarmupSpan, frozen=True, kw_only=True):
    """The latest warm-up. Its figures are null until it has ended, and while it recompiles."""

    ended: bool
    """Whether it has ended and nothing has begun since."""
    ended_at: Annotated[Epoch | None, figure("warmup_end_timestamp_seconds")] = None
    """When the last compile activity of the latest warm-up ended; absent until then and while a
    recompile opens it again.
    """
    seconds: Annotated[Seconds | None, figure("warmup_seconds")] = None
    """Length of the latest warm-up, from its first compile activity to the end of its last; absent
    until it ended and while a recompile opens it again.
    """
    steps: Annotated[int | None, figure("warmup_steps")] = None
    """Steps that the latest warm-up took; absent until it ended and while a recompile opens it
    again.
    """
    count: int | None = None
    """How often the rank became warm; null if the answer comes from Prometheus."""
    first: WarmupSpan | None = None
    """The first one; null until it has ended."""


class PublishedPauses(Struct, frozen=True, kw_only=True):
    """Waits of the training other than compilation, as ``/status`` has them, too."""

    checkpoint_seconds: Annotated[Seconds | None, figure("checkpoint_seconds_total")] = None
    """Time in which the training saved with `torch.save` or a distributed checkpoint and waited for
    it, the save in progress included; absent if this PyTorch has no hook point for it.
    """
    saving_since: Annotated[Epoch | None, figure("checkpoint_start_timestamp_seconds")] = None
    """When the save in progress began; absent if there is none."""
    evaluations: Annotated[int | None, figure("evaluations_total")] = None
    """Evaluations that have ended; absent before the first is reported."""
    evaluation_seconds: Annotated[Seconds | None, figure("evaluation_seconds_total")] = None
    """Time in which the training evaluated, the evaluation in progress included; absent before the
    first is reported.
    """
    evaluation_compiling_seconds: Seconds | None = None
    """Time of the compile activity in progress within the evaluation in progress, also of those in
    which the rank ended; null without both.
    """
    evaluation_batch_seconds: Seconds | None = None
    """Mean time per batch of the evaluations in which nothing compiled; null before the first one
    with batches of a DataLoader.
    """
    before_seconds: Seconds | None = None
    """Saving and evaluating before the first compile activity, or before the end of step 1 if that
    came earlier.
    """
    warmup_seconds: Seconds | None = None
    """Saving and evaluating between the compile activities of the first warm-up, which its length
    includes.
    """
    evaluating_since: Annotated[Epoch | None, figure("evaluation_start_timestamp_seconds")] = None
    """When the evaluation in progress began; absent if there is none."""
    between_cells_since: Annotated[
        Epoch | None, figure("between_cells_start_timestamp_seconds")
    ] = None
    """When the last cell of the notebook ended; absent while one runs, and outside notebooks."""
    between_cells_seconds: Seconds | None = None
    """Time in which no cell of the notebook ran, the present wait included; null outside notebooks.
    """


class Pauses(PublishedPauses, frozen=True, kw_only=True):
    """Waits of the training other than compilation; ``None`` if its torch has no hook point.

    ``saving_for_seconds``: since ``saving_since``, and so on.
    """

    saving_for_seconds: float | None = None
    evaluating_for_seconds: float | None = None
    between_cells_for_seconds: float | None = None
