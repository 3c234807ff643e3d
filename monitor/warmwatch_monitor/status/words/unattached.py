"""Unattached trainings in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warmwatch_monitor.model import ObservedTraining, Signs
from warmwatch_monitor.model.machine import AGREEING
from warmwatch_monitor.output.summary import Clause, Headline, Importance, headline, shortened

ATTACH = 'add "import warmwatch.auto" to its script to know'
LIKELY = {
    True: "is likely to compile",
    False: "is likely not to compile",
    None: "may compile or not",
}


def evidence(training: ObservedTraining) -> list[str]:
    """The known signs of the last poll; nothing before the first."""
    looks = training.looks
    if not looks:
        return []
    few = [f"{looks} of {AGREEING} polls so far, too few to judge (status --watch polls on)"]
    return [*_signs(training.signs), *(few if looks < AGREEING else ())]


def _signs(signs: Signs) -> Iterator[str]:
    if signs.gpu_ratio is not None:
        power = "" if signs.watts is None else f", {signs.watts:.0f} W"
        idle = "" if signs.idle_watts is None else f" (idle {signs.idle_watts:.0f} W)"
        yield f"its GPU at {100 * signs.gpu_ratio:.0f} %{power}{idle}"
    if signs.workers_busy is not None and signs.workers_idle is not None:
        alive = signs.workers_busy + signs.workers_idle
        busy = f"{signs.workers_busy} of {alive} compile workers busy"
        yield busy if alive else "no compile workers"
    if signs.cpu_ratio is not None:
        yield f"the process uses {100 * signs.cpu_ratio:.0f} % of a core"


def no_run(trainings: Sequence[ObservedTraining]) -> Headline:
    """The headline if no run is known but these processes look like trainings."""
    first = trainings[0]
    more = f" (and {len(trainings) - 1} more)" if len(trainings) > 1 else ""
    command = shortened(first.command or "a process")
    return headline(
        "",
        f"no run is known here, but {command} (pid {first.pid}){more} looks like a training",
        [
            Clause(f"it has no agent and {LIKELY[first.likely_compiling]}", Importance.REASON),
            *(Clause(words, Importance.CONTEXT) for words in evidence(first)),
            Clause(ATTACH, Importance.REMEDY),
        ],
    )
