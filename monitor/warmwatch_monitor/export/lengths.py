"""How long a step takes, read off a rank of an answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def a_step(rank: Mapping[str, Any]) -> float | None:
    """Seconds, now: the recent length; where the answer has none, that of the whole run."""
    length: float | None = rank["step_seconds"].get("recent") or clean_step(rank)
    return length


def clean_step(rank: Mapping[str, Any]) -> float | None:
    """Seconds, over the whole run, exact where the steps are alike; ``None`` where none was clean.

    What was remembered before there was ``typical`` has the median alone.
    """
    steps = rank["step_seconds"]
    length: float | None = steps.get("typical") or steps["median"]
    return length
