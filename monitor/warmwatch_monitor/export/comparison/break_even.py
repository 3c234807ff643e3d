"""When what a run cost more than another is paid back by its steps. Pure."""

from __future__ import annotations

from warmwatch_monitor.export.comparison.parts import BreakEven, Measured, Side
from warmwatch_monitor.export.comparison.uncertain import difference, steps_until


def break_even(side: Side, against: Side) -> BreakEven:
    """Of ``side`` against ``against``: what it cost more, over what each of its steps saves."""
    whole = BreakEven(run=side.label, against=against.label, outcome="unknown")
    if None in (side.cost_seconds, against.cost_seconds, side.steady, against.steady):
        return whole
    assert side.steady
    assert against.steady
    cost = (side.cost_seconds or 0.0) - (against.cost_seconds or 0.0)
    saves = difference(against.steady, side.steady)
    outcome = _outcome(cost, saves)
    if outcome != "paid_back":
        return BreakEven(
            run=side.label,
            against=against.label,
            outcome=outcome,
            cost_seconds=cost,
            saves=saves,
        )
    return _paid_back(side, against, cost, saves)


def _outcome(cost: float, saves: Measured) -> str:
    if abs(saves.value) <= (saves.uncertainty or 0.0):
        return "no_difference"
    if cost <= 0:
        return "at_once" if saves.value > 0 else "unknown"
    return "paid_back" if saves.value > 0 else "never"


def _paid_back(side: Side, against: Side, cost: float, saves: Measured) -> BreakEven:
    off = saves.uncertainty
    return BreakEven(
        run=side.label,
        against=against.label,
        outcome="paid_back",
        cost_seconds=cost,
        saves=saves,
        step=steps_until(cost, saves.value),
        earliest=None if off is None else steps_until(cost, saves.value + off),
        latest=None if off is None else steps_until(cost, saves.value - off),
    )
