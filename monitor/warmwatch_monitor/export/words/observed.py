"""Trainings without the agent, in words."""

from __future__ import annotations

from collections.abc import Sequence

from warmwatch_monitor.model import ObservedTraining

ATTACH = 'add "import warmwatch.auto" to its script to know'
LIKELY = {
    True: "is likely to compile",
    False: "is likely not to compile",
    None: "may compile or not",
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
