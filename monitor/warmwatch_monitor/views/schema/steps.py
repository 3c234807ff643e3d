"""A rank's steps in the ``/status`` answer, and what delays them."""

from __future__ import annotations

from pydantic import BaseModel, Field

from warmwatch_monitor.views.schema.units import Epoch, Seconds


class WarmupSpan(BaseModel):
    """One warm-up that has ended; all null where none has."""

    ended_at: Epoch | None = Field(description="When its last compile activity ended.")
    seconds: Seconds | None = Field(description="From its first activity to the end of its last.")
    steps: int | None = Field(description="Steps that it took.")


class Warmup(WarmupSpan):
    """The latest warm-up; its figures are null until it has ended, and while it is open again."""

    ended: bool = Field(description="Whether it has ended and nothing has begun since.")
    count: int | None = Field(
        description="How many times the rank became warm; null where a Prometheus was asked."
    )
    first: WarmupSpan | None = Field(description="The first one; null until it has ended.")


class StepSeconds(BaseModel):
    """Lengths of steps. Median and p99 are of clean steps, within 2.5 % of the true ones."""

    first: Seconds | None = Field(description="Of step 1, which holds most of the compiling.")
    first_at: float | None = Field(description="When the first step ended; null before it.")
    last: Seconds | None = Field(description="Of the last step.")
    recent: Seconds | None = Field(
        description="The real speed: median length of the clean steps of the last 60 s, 3 to 64 of "
        "them, none from before the last compile activity as soon as there are 3. Null before."
    )
    recent_steps: int | None = Field(description="Of how many steps `recent` is the median.")
    median: Seconds | None = Field(
        description="Over the whole run; null before the first clean step."
    )
    p99: Seconds | None = Field(description="99th percentile; null before the first clean step.")
    typical: Seconds | None = Field(
        description="Over the whole run: the clean steps' mean where they are alike, else their "
        "median; null before the first of them."
    )
    median_low: Seconds | None = Field(
        description="The median is above this, at 97.5 %, as far as bins tell: each is 5 % wide, "
        "and lengths are taken to lie evenly in it. `typical` is exact where they are alike."
    )
    median_high: Seconds | None = Field(description="Likewise below this.")
    clean_count: int | None = Field(description="How many steps were clean.")
    clean_seconds: Seconds | None = Field(description="What the clean steps took together.")


class LongStep(BaseModel):
    """A step that came far later than usual, though nothing compiled in it."""

    step: int = Field(description="Which one, from 1.")
    seconds: Seconds = Field(description="Since the one before, pauses included.")
    usual_seconds: Seconds = Field(description="Median of the clean steps, then.")
    checkpoint_seconds: Seconds = Field(description="Of it, saving.")
    evaluation_seconds: Seconds = Field(description="Of it, evaluating, where that was told.")
    between_cells_seconds: Seconds = Field(
        description="Of it, with no cell of its notebook running."
    )
    data_seconds: Seconds | None = Field(
        description="Of it, waiting for batches of DataLoaders; null where none gave one in it."
    )
    batches: int | None = Field(description="Batches that were handed out in it; null: none.")
    evaluation: bool = Field(
        description="It was told of, or far more batches were handed out than in a usual step."
    )
    words: str = Field(description="The same in one clause.")


class Slower(BaseModel):
    """How a rank is slower than it was since its warm-up."""

    ratio: float = Field(description="How many times as long as `before` a step takes.")
    seconds: Seconds = Field(description="A step, now.")
    before: Seconds = Field(description="A step, at the fastest lasting level since the warm-up.")
    since_step: int | None = Field(
        description="The last step at that speed; null where nobody saw the change."
    )
    causes: list[str] = Field(
        description="What differs from then, as far as it is measured; empty: no known cause."
    )


class Batches(BaseModel):
    """What the DataLoaders handed out in the training process."""

    count: int = Field(description="Batches so far.")
    wait_seconds: Seconds | None = Field(
        description="Time that the loop waited for them; null until there was one."
    )


class Pauses(BaseModel):
    """What the training waited for that is no compilation."""

    data_seconds: Seconds | None = Field(
        description="For batches of DataLoaders; null until there was one."
    )
    checkpoint_seconds: Seconds | None = Field(
        description="For `torch.save` and the distributed checkpoint, the one in progress included;"
        " null where this torch has no seam for it."
    )
    saving_since: Epoch | None = Field(description="When the save in progress began, else null.")
    evaluations: int | None = Field(
        description="Evaluations that have ended; null until one was told of."
    )
    evaluation_seconds: Seconds | None = Field(
        description="For evaluations, the one in progress included; null likewise."
    )
    evaluating_since: Epoch | None = Field(
        description="When the evaluation in progress began, else null."
    )
    between_cells_since: Epoch | None = Field(
        description="When the last cell of its notebook ended; null while one runs, and in none."
    )


class Cost(BaseModel):
    """What the compiler cost in time."""

    first_step_seconds: Seconds | None = Field(description="Length of step 1.")
    steady_step_seconds: Seconds | None = Field(description="Median length of the clean steps.")
    beyond_steady_seconds: Seconds | None = Field(
        description="How much longer the steps with compile activity took than clean ones would."
    )
    steps_touched: int | None = Field(description="Steps that held compile activity.")


class Baseline(BaseModel):
    """The first steps, where they were to run eagerly on purpose, and what compiling brought."""

    steps: int = Field(description="How many; once it is over, how many they were.")
    seconds: Seconds | None = Field(description="The median of them; null before the last one.")
    speed_up: float | None = Field(
        description="How many times as fast as eager its clean steps are; null before it was warm."
    )
    break_even_steps: int | None = Field(
        description="Steps after the baseline that make good what compiling cost beyond clean "
        "steps; null where they are no faster."
    )
    paid_back_at_step: int | None = Field(description="The step by which they have.")
