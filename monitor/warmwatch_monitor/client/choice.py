"""Selects the runs of an answer by name or pattern. Pure.

A name selects the caller's own run before those of others. If the caller is unknown, as with
Prometheus, it selects the runs of every user. ``gpt2@alice`` always selects alice's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from warmwatch.shared.phrases import counted
from warmwatch_monitor.base.errors import UnknownRunError, UnreadRunError
from warmwatch_monitor.output.summary import several_of
from warmwatch_monitor.status.goals import reduced

Answer = dict[str, Any]


def is_pattern(run: str) -> bool:
    """Whether ``run`` may stand for several names."""
    return any(sign in run for sign in "*?[")


def is_own(run: Answer, uid: int | None) -> bool:
    """Whether a run may be the user ``uid``'s: it is, or its owner is unknown."""
    return uid is None or run.get("owner_uid") in (None, uid)


def choose(answer: Answer, run: str | None, uid: int | None = None, *, own: bool = False) -> Answer:
    """``answer`` reduced to the runs that ``run`` names or matches.

    ``uid``: the caller. ``own``: a name without an owner selects the caller's runs only.

    Raises:
        UnknownRunError: there is none. UnreadRunError: there is none so far.
    """
    if run is None:
        return answer
    try:
        return only(answer, choose_runs(answer["runs"], run, uid, own=own))
    except UnknownRunError as error:
        if why := why_incomplete(answer, uid):
            raise UnreadRunError(run, error.known, why) from None
        error.args = ("; ".join((str(error), *_refused(answer, run))),)
        raise


def choose_runs(
    runs: Sequence[Answer], run: str | None, uid: int | None = None, *, own: bool = False
) -> Sequence[Answer]:
    """Those of ``runs`` that :func:`choose` leaves. Raises as it does."""
    if run is None:
        return runs
    own_runs = [values for values in runs if is_own(values, uid)]
    if "@" in run:  # no user's own run name may pass for another user's run
        chosen = _full(runs, run) or _named(own_runs, run)
    else:
        chosen = _named(own_runs, run) or ([] if own else _named(runs, run))
    if not chosen:
        others = _named(runs, run) if "@" not in run else []
        raise UnknownRunError(
            run,
            tuple(values["run"] for values in runs),
            tuple(dict.fromkeys(_with_owner(values) for values in others)),
        )
    return chosen


def why_incomplete(answer: Answer, uid: int | None) -> str | None:
    """Why a run of the user ``uid`` that is not in ``answer`` may exist; ``None``: it does not."""
    if why := answer["incomplete"]:
        return str(why)
    if uid is not None and uid in answer["left_out_uids"]:
        return "you have more records than an answer has room for"
    return None


def _refused(answer: Answer, run: str) -> Iterator[str]:
    """How many records were refused, of which one may be the run's, and why the likeliest was."""
    refusals = answer["refusals"]
    number = len(refusals) + answer["more_refusals"]
    if refusals:
        beginning = (
            f"/{run.partition('@')[0]}-"  # of a record's folder: most names stand as they are
        )
        likeliest = min(refusals, key=lambda one: beginning not in one["path"])
        records = counted(number, "record")
        yield f"{records} could not be read: {likeliest['path']}: {likeliest['reason']}"
        if number > 1:
            yield "`warmwatch status` lists all of these"


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern)


def _named(runs: Sequence[Answer], run: str) -> list[Answer]:
    """The runs with this name; if there are none, those that match it as a pattern."""
    chosen = [values for values in runs if _plain(values) == run]
    return chosen or [values for values in runs if _matches(_plain(values), run)]


def _full(runs: Sequence[Answer], run: str) -> list[Answer]:
    """The runs with this shown name or ``name@owner``; if there are none, those that match it."""
    chosen = [values for values in runs if run in (values["run"], _with_owner(values))]
    return chosen or [
        values
        for values in runs
        if _matches(values["run"], run) or _matches(_with_owner(values), run)
    ]


def _plain(run: Answer) -> str:
    """Its own name, without an owner."""
    return str(run.get("name") or run["run"])


def _with_owner(run: Answer) -> str:
    owner = run.get("owner")
    return f"{_plain(run)}@{owner}" if owner else str(run["run"])


def only(answer: Answer, runs: Sequence[Answer]) -> Answer:
    """``answer`` reduced to ``runs``: a non-empty subset of its runs."""
    if len(runs) == len(answer["runs"]):
        return answer
    sentence = several_of(runs, answer)
    return {
        **reduced(answer, runs),
        "summary": sentence.summary,
        "details": list(sentence.details),
    }
