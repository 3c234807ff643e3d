"""How far a figure may be off: 95 % intervals from what is kept of steps. Pure.

Between which of the clean steps their median lies is known from their order alone, whatever their
distribution (the share of steps below it is one half, give or take 0.98 over the root of their
number). Half of that is taken for a mean too, which stands for steps that are alike. A median is
also no finer than its bin, 2.5 % to each side. Nothing here knows how two runs of the same program
differ: machines, neighbours and clocks are not in it.
"""

from __future__ import annotations

from math import ceil, hypot

from warmwatch_monitor.export.comparison.parts import Measured
from warmwatch_monitor.export.report.parts import Steady
from warmwatch_monitor.model.worth import HALF_A_BIN


def steady(known: Steady) -> Measured | None:
    """A clean step."""
    if known.seconds is None:
        return None
    if known.low is None or known.high is None:
        return Measured(value=known.seconds)
    error = (known.high - known.low) / 2
    if known.seconds == known.median:
        error = hypot(error, HALF_A_BIN * known.seconds)
    return Measured(value=known.seconds, uncertainty=error)


def difference(one: Measured, other: Measured) -> Measured:
    """How much ``one`` is more than ``other``."""
    return Measured(value=one.value - other.value, uncertainty=_both(one, other))


def ratio(one: Measured, other: Measured) -> Measured:
    """How many times ``other`` goes into ``one``."""
    value = one.value / other.value
    if one.uncertainty is None or other.uncertainty is None:
        return Measured(value=value)
    relative = hypot(one.uncertainty / one.value, other.uncertainty / other.value)
    return Measured(value=value, uncertainty=value * relative)


def _both(one: Measured, other: Measured) -> float | None:
    if one.uncertainty is None or other.uncertainty is None:
        return None
    return hypot(one.uncertainty, other.uncertainty)


def steps_until(cost: float, saves: float) -> int:
    """After so many steps it is ahead."""
    return max(1, ceil(cost / saves))
