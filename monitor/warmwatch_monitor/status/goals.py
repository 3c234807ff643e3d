"""Whether a ``/status`` document meets the goal of a wait, or never will. Pure.

Shared by ``/status?wait=`` and ``warmwatch wait``. ``warm`` is reached where every living rank is
warm in the sense of the contract, or where the runs finished after they had been; ``ended`` where
no run lives any more; every other state where the least advanced run is in it. ``settled`` is
``warm`` where no living rank's speed still changes.

A run that ended before the wait began, or was exiting then, is ignored, because the wait is for the
run just launched.
There are two exceptions: the goal is an end, or the run began so shortly before the wait that it is
probably the launched run, which failed immediately. Living runs always count: clocks can be set
back, and differ between machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warmwatch.shared.states import ENDED_STATES, MAY_NEVER_END, State, least_advanced

Answer = dict[str, Any]

# the goals of a wait: each state, a settled speed, and any end
SETTLED = "settled"
GOALS = (*(state.value for state in State), SETTLED, "ended")
END_GOALS = ENDED_STATES | {"ended"}
JUST_BEGUN_SECONDS = 10.0

LONGEST_WAIT_SECONDS = 3600.0
USUAL_WAIT_SECONDS = 300.0

_WARM_STEPS = 3  # K, if the answer lacks it


def is_about(*, ends: bool, lived: bool, attached_at: float | None, began: float | None) -> bool:
    """Whether a wait that began at ``began`` applies to a run.

    Times are seconds since the epoch, all of one machine's clock.

    Args:
        ends: runs that ended before count too.
        lived: the run was seen at work since the wait began; a wall clock that is set back
        meanwhile must not make it one of before.
        attached_at: when its latest rank attached; ``None`` if not known.
    """
    if ends or lived:
        return True
    if attached_at is None or began is None:
        return False
    return attached_at >= began - JUST_BEGUN_SECONDS


def attached_at(run: Answer) -> float | None:
    """When the latest of a run's ranks attached; ``None`` if not known for one of them."""
    times = [rank.get("attached_at") for rank in run["ranks"]]
    return max(times) if times and None not in times else None


def lives(run: Answer) -> bool:
    """Whether any rank of the run has not ended."""
    return run["state"] not in ENDED_STATES


def is_at_work(run: Answer) -> bool:
    """Whether the program of any rank still runs: one that exits has only its end to come."""
    return any(
        rank["state"] not in ENDED_STATES
        and all(condition["condition"] != "exiting" for condition in rank["conditions"])
        for rank in run["ranks"]
    )


def is_over(answer: Answer) -> bool:
    """Whether the answer is final: there are runs, and none of them lives."""
    return bool(answer["runs"]) and not any(map(lives, answer["runs"]))


def reduced(answer: Answer, runs: Sequence[Answer]) -> Answer:
    """``answer`` of some of its ``runs``; its sentence is still that of all."""
    if len(runs) == len(answer["runs"]):
        return answer
    living = [run for run in runs if lives(run)]
    return {
        **answer,
        "compiling": any(run["compiling"] for run in living) if living else None,
        "warm": all(run["warm"] for run in living) if living else None,
        "runs": list(runs),
    }


def is_reached(answer: Answer, goal: str) -> bool:
    runs = answer["runs"]
    if goal == "ended":
        return is_over(answer)
    if goal in (State.WARM.value, SETTLED):
        warm = answer["warm"] is True and (goal != SETTLED or all(map(_is_settled, runs)))
        return warm or (is_over(answer) and all(map(_finished_warm, runs)))
    return bool(runs) and least_advanced(State(run["state"]) for run in runs).value == goal


def _is_settled(run: Answer) -> bool:
    """Whether the speed of no living rank still changes, as far as that is known."""
    living = (rank for rank in run["ranks"] if rank["state"] not in ENDED_STATES)
    return all(rank["step_seconds"].get("settled") is not False for rank in living)


def may_never_end(run: Answer) -> bool:
    """Whether a living rank has a condition that may never end, so that the wait may not either."""
    return any(
        rank["state"] not in ENDED_STATES
        and any(condition["condition"] in MAY_NEVER_END for condition in rank["conditions"])
        for rank in run["ranks"]
    )


def was_warm(run: Answer) -> bool:
    """Whether every rank of the run was warm at some time, or always ran eagerly."""
    return all(map(_rank_was_warm, run["ranks"]))


def _rank_was_warm(rank: Answer) -> bool:
    warmup = rank["warmup"]
    never_compiled = rank["compile"]["seconds"] == 0
    return bool(
        warmup["ended"] or warmup["count"] or (never_compiled and rank["steps"] >= _WARM_STEPS)
    )


def _finished_warm(run: Answer) -> bool:
    """Whether it finished by itself and had been warm, perhaps between two polls."""
    return run["state"] == State.FINISHED.value and was_warm(run)
