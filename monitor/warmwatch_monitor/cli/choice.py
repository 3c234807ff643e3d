"""The runs that a name or a pattern chooses of an answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from warmwatch.states import ENDED
from warmwatch_monitor.errors import UnknownRunError

Answer = dict[str, Any]

ENDED_STATES = frozenset(state.value for state in ENDED)


def is_pattern(run: str) -> bool:
    """Whether ``run`` may stand for several names."""
    return any(sign in run for sign in "*?[")


def choose(answer: Answer, run: str | None) -> Answer:
    """``answer`` with the runs alone that are named or matched by ``run``, as if they were all.

    Raises:
        UnknownRunError: there is none.
    """
    if run is None:
        return answer
    runs = answer["runs"]
    chosen = [one for one in runs if one["run"] == run]
    chosen = chosen or [one for one in runs if fnmatchcase(one["run"], run)]
    if not chosen:
        raise UnknownRunError(run, tuple(one["run"] for one in runs))
    return only(answer, chosen)


def only(answer: Answer, runs: Sequence[Answer]) -> Answer:
    """``answer`` with ``runs`` alone, which are some of its own and at least one."""
    if len(runs) == len(answer["runs"]):
        return answer
    living = [one for one in runs if one["state"] not in ENDED_STATES]
    return {
        **answer,
        "compiling": any(one["compiling"] for one in living) if living else None,
        "warm": all(one["warm"] for one in living) if living else None,
        "summary": _summary(runs),
        "runs": list(runs),
    }


def _summary(runs: Sequence[Answer]) -> str:
    if len(runs) == 1:
        return str(runs[0]["summary"])
    return f"{len(runs)} runs: " + "; ".join(f"{one['run']} {one['state']}" for one in runs)
