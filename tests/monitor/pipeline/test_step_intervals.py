"""The interval of a step's length is of the same kind as the length: of a mean, or of a median."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence

import pytest

from warmwatch.shared.record import BINS, BOUNDS_NS, HALF_A_BIN
from warmwatch_monitor.model.steps import Lengths
from warmwatch_monitor.pipeline.slot_figures import lengths


def of(steps: Sequence[float]) -> Lengths:
    bins = [0] * BINS
    for one in steps:
        bins[bisect_left(BOUNDS_NS, round(one * 1e9))] += 1
    return lengths(bins, round(sum(steps) * 1e9))


def test_the_interval_of_a_mean_holds_the_true_mean_nineteen_times_in_twenty() -> None:
    """One step in four is longer, which widens the interval of a mean and not a median's."""
    chosen, within, cases = random.Random(3), 0, 0
    for _ in range(1500):
        steps = [1 + 0.16 * (chosen.random() < 0.25) for _ in range(200)]
        found = of([0.02 * one * chosen.uniform(0.96, 1.04) for one in steps])
        if found.typical == found.median:
            continue
        cases += 1
        assert found.typical is not None
        assert found.typical_uncertainty is not None
        within += abs(found.typical - 0.02 * 1.04) <= found.typical_uncertainty
    assert cases > 1000
    assert within / cases == pytest.approx(0.95, abs=0.02)


def test_the_interval_of_a_median_ignores_a_few_long_steps_and_has_the_error_of_a_bin() -> None:
    steps = [0.02 + 1e-5 * (at % 7) for at in range(100)]
    found = of([*steps, 5.0])
    assert found.typical == found.median
    assert found.typical_uncertainty == pytest.approx(HALF_A_BIN * 0.02, rel=0.2)
    alike = of(steps)
    assert alike.typical == pytest.approx(sum(steps) / 100)
    assert alike.typical_uncertainty is not None
    assert alike.typical_uncertainty < 0.01 * 0.02


def test_too_few_steps_have_no_interval() -> None:
    assert of([0.02, 0.021, 0.0205, 0.0201, 0.0202]).typical_uncertainty is None
    assert of([]).typical_uncertainty is None
    assert Lengths(count=9, sum_seconds=0.19, median=0.02).typical_uncertainty is None
