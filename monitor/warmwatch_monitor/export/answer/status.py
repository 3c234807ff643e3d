"""The whole ``/status`` answer: one Snapshot as the contract's JSON object.

Pure; the keys are public (schema version 1: keys may be added, none changes its meaning; what each
means is in ``views/schema``). What is not known is ``null``. Times are seconds since the epoch,
durations seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict, replace

from warmwatch.verdict import State, least_advanced
from warmwatch_monitor.budgets import LEFT_OUT
from warmwatch_monitor.errors import UnknownRunError, UnreadRunError
from warmwatch_monitor.export.answer import run as of_run
from warmwatch_monitor.export.answer.gpus import gpu
from warmwatch_monitor.export.words.observed import evidence
from warmwatch_monitor.export.words.sentence import answer
from warmwatch_monitor.model import (
    ObservedTraining,
    RunView,
    Snapshot,
    all_warm,
    any_compiling,
    incomplete,
)

SCHEMA_VERSION = 1


def status(snapshot: Snapshot, run: str | None = None) -> dict[str, Any]:
    """The whole answer, or with ``run`` that of the runs of that name alone.

    Raises:
        UnknownRunError: no run of that name; the message lists those there are.
    """
    runs = chosen(snapshot, run)
    words = answer(snapshot if run is None else replace(snapshot, runs=runs))
    return {
        "schema_version": SCHEMA_VERSION,
        "at": read_at(snapshot),
        "compiling": any_compiling(runs),
        "warm": all_warm(runs),
        "summary": words.summary,
        "details": list(words.details),
        "runs": [of_run.run(one) for one in runs],
        "observed": [_observed(training) for training in snapshot.observed],
        "gpus": [gpu(reading, snapshot.now_ns) for reading in snapshot.gpus],
        "host": asdict(snapshot.host) if snapshot.host else None,
        "sources": [asdict(health) for health in snapshot.sources],
        "exports": [asdict(health) for health in snapshot.exports],
        "directories": list(snapshot.directories),
        "refusals": [asdict(refusal) for refusal in snapshot.refusals],
        "more_refusals": snapshot.more_refusals,
        "unread_records": snapshot.unread,
        "left_out": {kind: snapshot.left_out.get(kind, 0) for kind in LEFT_OUT},
        "incomplete": incomplete(snapshot),
    }


def read_at(snapshot: Snapshot) -> float | None:
    """When the look at the records began that the answer rests on: what was recorded by then is in.

    ``None`` where none of this answer was read of records: there are none, or not any more.
    """
    for health in snapshot.sources:
        if health.source == "records" and health.up and health.last_success is not None:
            return health.last_success - (health.read_seconds or 0.0)
    return None


def reached(runs: Sequence[RunView], wanted: str) -> bool:
    """Whether ``runs`` are where ``wanted`` says.

    ``warm`` means that nothing is left to wait for, in any living rank; every other state means
    that the least advanced of the runs is in it.
    """
    if wanted == State.WARM.value:
        return all_warm(runs) is True
    return bool(runs) and least_advanced(one.state for one in runs).value == wanted


def chosen(snapshot: Snapshot, run: str | None) -> tuple[RunView, ...]:
    """The runs that ``run`` names: the one that is shown so, else those that their users call so.

    Nobody knows who asks, so of several users' runs of one name none is preferred.

    Raises:
        UnknownRunError: no run of that name; UnreadRunError: none so far.
    """
    if run is None:
        return snapshot.runs
    found = tuple(view for view in snapshot.runs if view.run == run)
    called = _full if "@" in run else _plain  # nobody's own name can pass for another user's
    found = found or tuple(view for view in snapshot.runs if called(view) == run)
    if not found:
        known = tuple(view.run for view in snapshot.runs)
        if why := incomplete(snapshot):
            raise UnreadRunError(run, known, why)
        raise UnknownRunError(run, known)
    return found


def _plain(view: RunView) -> str | None:
    return view.who.name


def _full(view: RunView) -> str | None:
    return f"{view.who.name}@{view.who.owner}"


def _observed(training: ObservedTraining) -> dict[str, Any]:
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
        "evidence": evidence(training),
    }
