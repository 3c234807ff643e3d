"""A rank's facts, for a test of the verdict to begin with."""

from __future__ import annotations

from support.ranks import SECOND, K
from warmwatch.shared.record import CompileCounts, StepCounts
from warmwatch.shared.verdict import Facts

AT = 1000 * SECOND
MINUTE = 60 * SECOND


def facts(**others: object) -> Facts:
    """A rank that was warm once, and made its last step at AT."""
    known: dict[str, object] = {
        "attached_ns": 1,
        "warm_steps": K,
        "steps": StepCounts(steps=20, last_step_ns=AT),
        "compile": CompileCounts(),
        **others,
    }
    return Facts(**known)  # type: ignore[arg-type]


def compiled(**counts: object) -> CompileCounts:
    known = {"begun": 1, "ended": 1, "activities_seen": 1, **counts}
    return CompileCounts(**known)  # type: ignore[arg-type]
