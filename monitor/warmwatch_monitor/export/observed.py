"""Trainings without the agent in the answers: the ``observed`` of /status, and their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from warmwatch_monitor.model import ObservedTraining
from warmwatch_monitor.outside import AGREEING

ATTACH = 'add "import warmwatch.auto" to its script to know'
LIKELY = {
    True: "is likely to compile",
    False: "is likely not to compile",
    None: "may compile or not",
}


def observed(training: ObservedTraining) -> dict[str, Any]:
    """One of them as JSON."""
    signs = training.signs
    known = signs.workers_busy is not None and signs.workers_idle is not None
    workers = {"busy": signs.workers_busy, "idle": signs.workers_idle}
    return {
        "pid": training.pid,
        "command": training.command,
        "gpus": list(training.gpus),
        "workers": workers if known else None,
        "cpu_ratio": signs.cpu_ratio,
        "likely_compiling": training.likely_compiling,
        "evidence": list(evidence(training)),
    }


def evidence(training: ObservedTraining) -> Iterator[str]:
    """The signs of the last look, in words."""
    signs = training.signs
    if signs.gpu_ratio is not None:
        power = "" if signs.watts is None else f", {signs.watts:.0f} W"
        idle = "" if signs.idle_watts is None else f" (idle {signs.idle_watts:.0f} W)"
        yield f"its GPU at {100 * signs.gpu_ratio:.0f} %{power}{idle}"
    if signs.workers_busy is not None and signs.workers_idle is not None:
        alive = signs.workers_busy + signs.workers_idle
        yield (
            f"{signs.workers_busy} of {alive} compile workers busy"
            if alive
            else ("no compile workers")
        )
    if signs.cpu_ratio is not None:
        yield f"the process uses {100 * signs.cpu_ratio:.0f} % of a core"
    if 0 < training.looks < AGREEING:
        yield f"seen {training.looks} of the {AGREEING} times that it takes to judge"


def no_run(trainings: Sequence[ObservedTraining]) -> str:
    """What to say where no run is known and these look like trainings."""
    first = trainings[0]
    more = f" (and {len(trainings) - 1} more)" if len(trainings) > 1 else ""
    words = "; ".join(evidence(first))
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
