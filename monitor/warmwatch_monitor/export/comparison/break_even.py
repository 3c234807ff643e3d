"""When what a run cost more than another is paid back by its steps. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from warmwatch_monitor.export.comparison.parts import BreakEven, Measured, Side
from warmwatch_monitor.export.comparison.uncertain import difference, steps_until

_CROSSING = frozenset({"paid_back", "ahead_until"})


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
    found = BreakEven(
        run=side.label, against=against.label, outcome=outcome, cost_seconds=cost, saves=saves
    )
    return _at_step(found, cost, saves) if outcome in _CROSSING else found


def _outcome(cost: float, saves: Measured) -> str:
    if abs(saves.value) <= (saves.uncertainty or 0.0):
        return "no_difference"
    if saves.value > 0:
        return "paid_back" if cost > 0 else "at_once"
    return "never" if cost >= 0 else "ahead_until"


def _at_step(found: BreakEven, cost: float, saves: Measured) -> BreakEven:
    """With the step at which one comes to be ahead of the other."""
    off, cost, each = saves.uncertainty, abs(cost), abs(saves.value)
    return replace(
        found,
        step=steps_until(cost, each),
        earliest=None if off is None else steps_until(cost, each + off),
        latest=None if off is None else steps_until(cost, each - off),
    )
