"""Amounts in words."""

from __future__ import annotations

import pytest

from warmwatch.shared.phrases import took
from warmwatch_monitor.output import amounts


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 ms"),
        (-0.0, "0 ms"),
        (0.0001, "0.1 ms"),
        (-0.0005, "-0.5 ms"),
        (-2.0, "-2 s"),
        (0.1163, "116 ms"),
        (0.9996, "1 s"),
        (1.523, "1.52 s"),
        (118.0, "118 s"),
        (149.0, "149 s"),
        (-754.0, "-12 min 34 s"),
        (754.0, "12 min 34 s"),
    ],
)
def test_what_was_measured_has_three_digits_and_may_be_zero_or_negative(
    seconds: float, words: str
) -> None:
    assert took(seconds) == words


@pytest.mark.parametrize(
    ("speed_up", "words", "gain"),
    [
        (
            0.135,
            "7.41 times slower",
            "7.41 times slower than eager, so compiling never breaks even",
        ),
        (0.999, "as fast", "as fast as eager, so compiling never breaks even"),
        (1.0, "as fast", "as fast as eager, so compiling never breaks even"),
        (1.3, "1.3 times faster", "1.3x as fast as eager"),
    ],
)
def test_a_speed_up_is_slower_as_fast_or_faster(speed_up: float, words: str, gain: str) -> None:
    assert amounts.faster(speed_up) == words
    assert amounts.gained(speed_up, None) == gain
