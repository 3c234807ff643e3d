"""Amounts in words."""

from __future__ import annotations

import pytest

from warmwatch_monitor.output import amounts


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 ms"),
        (-0.0, "0 ms"),
        (0.0001, "0.1 ms"),
        (-0.0005, "-0.5 ms"),
        (-2.0, "-2 s"),
        (-754.0, "-12 min 34 s"),
        (754.0, "12 min 34 s"),
    ],
)
def test_a_duration_may_be_zero_or_negative(seconds: float, words: str) -> None:
    assert amounts.took(seconds) == words
