"""Step lengths and slower periods of a rank of ``/status``, and PyTorch's texts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmwatch.shared.phrases import duration, one_line, step_length
from warmwatch.shared.states import ENDED_STATES


def a_step(rank: Mapping[str, Any]) -> float | None:
    """Step length in seconds: the recent one; of the whole run if it has ended, as in a report."""
    recent: float | None = rank["step_seconds"].get("recent")
    return clean_step(rank) if not recent or rank["state"] in ENDED_STATES else recent


def clean_step(rank: Mapping[str, Any]) -> float | None:
    """Clean step length in seconds over the whole run; ``None`` without a clean step.

    Older histories have only the median, without ``typical``.
    """
    steps = rank["step_seconds"]
    length: float | None = steps.get("typical") or steps["median"]
    return length


def slower_period(one: Mapping[str, Any]) -> str:
    """``for 3 min, steps 301 to 700: 400 ms a step (24 ms before, 17x); load 8.9 on 2 CPUs``."""
    ratio = float(f"{one['ratio']:.2g}")
    before = f"({step_length(one['before'])} before, {ratio:g}x)"
    why = ", ".join(one["causes"]) or "no known cause"
    return f"{_when_slower(one)}: {step_length(one['seconds'])} a step {before}; {why}"


def _when_slower(one: Mapping[str, Any]) -> str:
    since, until = one["since_step"], one["until_step"]
    if until is None:
        return "now" if since is None else f"since step {since:,}"
    if since is None:
        return f"up to step {until:,} (its begin was not seen)"
    took = duration(one["ended_at"] - one["began_at"])
    return f"for {took}, steps {since + 1:,} to {until:,}"


_REASON_LIMIT = 80


def own_words(reason: str, longest: int = _REASON_LIMIT) -> str:
    """PyTorch's text on one line, shortened to ``longest``."""
    return one_line(reason, longest)
