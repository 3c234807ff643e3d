"""A daemon's ``/history`` as looks that were made before ``top`` began. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from warmwatch_monitor.views.top.seen import Frame, RankThen


def frames(history: Mapping[str, Any]) -> Iterator[Frame]:
    """One for each moment of ``history``; who was not known then is not in it."""
    for place, at in enumerate(history["at"]):
        ranks = {
            (one["run"], one["rank"]): _rank(one, place)
            for one in history["ranks"]
            if one["steps"][place] is not None
        }
        gpus = {
            one["uuid"]: (one["power_watts"][place], one["utilization_ratio"][place])
            for one in history["gpus"]
        }
        yield Frame(at, ranks, gpus)


def _rank(one: Mapping[str, Any], place: int) -> RankThen:
    """All of its compile time is not told: without end, so that none seems to have come since."""
    return RankThen(
        steps=one["steps"][place],
        last_step=one["step_seconds"][place],
        compiled=math.inf,
        compiling=bool(one["compile_seconds"][place]),
    )
