"""For programs: JSON."""

from __future__ import annotations

from typing import Any

from warmwatch_monitor.export.words import growth
from warmwatch_monitor.gate.growth import Held
from warmwatch_monitor.views.gate.result import Result
from warmwatch_monitor.views.gate.text import verdict


def answer(result: Result) -> dict[str, Any]:
    """Schema version 1: keys are added, never renamed."""
    return {
        "schema_version": 1,
        "passed": result.passed,
        "summary": verdict(result),
        "compared": [_held(one) for one in result.held],
        "problems": result.problems,
        "notes": result.notes,
    }


def _held(held: Held) -> dict[str, Any]:
    return {
        "run": held.run,
        "ranks": held.ranks or None,
        "measure": held.measure,
        "baseline": held.was,
        "now": held.now,
        "limit": held.limit,
        "grew": held.grew,
        "words": growth.headline(held),
        "causes": [{"words": words, "advice": remedy} for words, remedy in growth.causes(held)]
        if held.grew
        else [],
    }
