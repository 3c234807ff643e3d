"""Amounts in words."""

from __future__ import annotations

import pytest

from warmwatch.shared.phrases import took


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
