"""What compiling is worth, held against steps of the same run that ran eagerly on purpose. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from warmwatch_monitor.model.figures import Figures
    from warmwatch_monitor.model.steps import Steps


class Baseline(Struct, frozen=True, kw_only=True):
    """The first ``steps`` of a rank, eager on purpose; ``seconds``: their median, once known."""

    steps: int
    seconds: float | None = None


class Gain(Struct, frozen=True, kw_only=True):
    """What compiling brought.

    Attributes:
        speed_up: how many times as fast as eager its clean steps are.
        break_even_steps: how many steps after the baseline make good what compiling cost so far;
        ``None`` where they are no faster. paid_back_at: the step by which they have.
    """

    speed_up: float
    break_even_steps: int | None = None
    paid_back_at: int | None = None


def beyond_steady_seconds(steps: Steps) -> float | None:
    """What the compiler cost: how much longer than clean steps those took that it touched."""
    steady, touched = steps.clean.median, steps.touched
    if steady is None or not touched.count or touched.sum_seconds is None:
        return None
    return touched.sum_seconds - touched.count * steady


def gain(figures: Figures) -> Gain | None:
    """Of a rank that was warm with what it compiled; ``None`` where anything of it is not known."""
    baseline, steady = figures.baseline, figures.steps.clean.typical
    if baseline is None or not baseline.seconds or not steady or not figures.warmups.count:
        return None
    saved, cost = baseline.seconds - steady, beyond_steady_seconds(figures.steps)
    speed_up = baseline.seconds / steady
    if saved <= 0 or cost is None:
        return Gain(speed_up=speed_up)
    needed = math.ceil(max(0.0, cost) / saved)
    return Gain(speed_up=speed_up, break_even_steps=needed, paid_back_at=baseline.steps + needed)
