"""The ``/status`` answer for runs that a Prometheus told of: the same words, less what it lacks.

What no series tells is ``null`` here too, never a figure made of the ones that are there.
"""

from __future__ import annotations

from typing import Any

from warmwatch_monitor.export.status import status
from warmwatch_monitor.model import Snapshot

# what a rank's part holds that no series does
_RANK_UNTOLD = ("energy", "pid", "attempt", "process", "agent_errors")
_STEPS_UNTOLD = ("first", "last", "p99")
_COST_UNTOLD = ("first_step_seconds", "beyond_steady_seconds", "steps_touched")
_WARMUP_UNTOLD = ("count", "first")


def fleet_status(snapshot: Snapshot, run: str | None = None) -> dict[str, Any]:
    """The whole answer, or with ``run`` that of one run alone.

    Raises:
        UnknownRunError: no run of that name; the message lists those there are.
    """
    answer = status(snapshot, run)
    for one in answer["runs"]:
        one["compile_joules"] = None
        for rank in one["ranks"]:
            _blank(rank, _RANK_UNTOLD)
            _blank(rank["step_seconds"], _STEPS_UNTOLD)
            _blank(rank["cost"], _COST_UNTOLD)
            _blank(rank["warmup"], _WARMUP_UNTOLD)
    return answer


def _blank(part: dict[str, Any], keys: tuple[str, ...]) -> None:
    part.update(dict.fromkeys(keys))
