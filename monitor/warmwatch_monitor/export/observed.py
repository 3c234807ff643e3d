"""Trainings without the agent in the answers: the ``observed`` of /status, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warmwatch_monitor.model import ObservedTraining

ATTACH = 'add "import warmwatch.auto" to its script to know'
LIKELY = {
    True: "is likely to compile",
    False: "is likely not to compile",
    None: "may compile or not",
}


def observed(training: ObservedTraining) -> dict[str, Any]:
    """One of them as JSON."""
    known = training.workers_busy is not None and training.workers_idle is not None
    workers = {"busy": training.workers_busy, "idle": training.workers_idle}
    return {
        "pid": training.pid,
        "command": training.command,
        "gpus": list(training.gpus),
        "workers": workers if known else None,
        "cpu_ratio": training.cpu_ratio,
        "likely_compiling": training.likely_compiling,
        "evidence": list(training.evidence),
    }


def no_run(trainings: Sequence[ObservedTraining]) -> str:
    """What to say where no run is known and these look like trainings."""
    first = trainings[0]
    more = f" (and {len(trainings) - 1} more)" if len(trainings) > 1 else ""
    words = "; ".join(first.evidence)
    return (
        f"no run is known here, but {first.command or 'a process'} (pid {first.pid}){more} looks "
        f"like a training without the agent and {LIKELY[first.likely_compiling]}: {words}; {ATTACH}"
    )


def counts(trainings: Sequence[ObservedTraining]) -> list[tuple[str, int]]:
    """How many are likely to compile, not to, and unknown: for the metric."""
    names = {"true": True, "false": False, "unknown": None}
    return [
        (name, sum(one.likely_compiling is value for one in trainings))
        for name, value in names.items()
    ]
