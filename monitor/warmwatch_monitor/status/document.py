"""The ``/status`` document: runs, GPUs, and the summary."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from warmwatch.shared.states import State, least_advanced
from warmwatch_monitor.base.errors import UnknownRunError, UnreadRunError
from warmwatch_monitor.figures.compile import Workers
from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.model.budgets import LEFT_OUT
from warmwatch_monitor.model.machine import GpuReading, ObservedTraining
from warmwatch_monitor.model.snapshot import (
    RunView,
    Snapshot,
    all_warm,
    any_compiling,
    incomplete,
    why_left_out,
)
from warmwatch_monitor.status.goals import SETTLED
from warmwatch_monitor.status.schema import status as schema
from warmwatch_monitor.status.words.sentence import answer, unattached_evidence


def gpu(reading: GpuReading, now_ns: int) -> schema.Gpu:
    """One GPU; ``age`` is how many seconds ago it was read."""
    return copied(
        reading,
        schema.Gpu,
        clocks_hertz=dict(reading.clocks_hertz) or None,
        throttled=_throttled(reading),
        ecc_errors=dict(reading.ecc_errors) or None,
        age=max(0.0, (now_ns - reading.at_ns) / 1e9),
    )


def _throttled(reading: GpuReading) -> list[str] | None:
    """The active throttle reasons: ``[]`` is none, ``None`` is not known."""
    if not reading.throttled:
        return None
    return [reason for reason, holds in reading.throttled if holds]


_MOST_UIDS = 100  # users in the list


def status(snapshot: Snapshot, run: str | None = None) -> schema.Status:
    """The whole answer, or with ``run`` only the runs of that name.

    Raises:
        UnknownRunError: no run of that name; the message lists the known runs.
    """
    runs = chosen(snapshot, run)
    sentence = answer(snapshot if run is None else replace(snapshot, runs=runs))
    return schema.Status(
        schema_version=schema.SCHEMA_VERSION,
        at=read_at(snapshot),
        compiling=any_compiling(runs),
        warm=all_warm(runs),
        awaited=snapshot.awaited,
        summary=sentence.summary,
        details=list(sentence.details),
        runs=_run_documents(runs),
        observed=[_observed(training) for training in snapshot.observed],
        gpus=[gpu(reading, snapshot.now_ns) for reading in snapshot.gpus],
        host=snapshot.host,
        sources=list(snapshot.sources),
        exports=list(snapshot.exports),
        directories=list(snapshot.directories),
        refusals=list(snapshot.refusals),
        more_refusals=snapshot.more_refusals,
        unread_records=snapshot.unread,
        left_out=schema.LeftOut(**{kind: snapshot.left_out.get(kind, 0) for kind in LEFT_OUT}),
        left_out_uids=sorted(snapshot.left_out_uids)[:_MOST_UIDS],
        incomplete=incomplete(snapshot),
    )


def _run_documents(runs: Sequence[RunView]) -> list[schema.Run]:
    if not runs:
        return []
    from warmwatch_monitor.status.run import run_document  # loaded with the first run

    return [run_document(run) for run in runs]


def read_at(snapshot: Snapshot) -> float | None:
    """When the poll of the records began; the answer includes everything recorded before.

    ``None`` if the answer has no data from records.
    """
    for health in snapshot.sources:
        if health.source == "records" and health.up and health.last_success is not None:
            return health.last_success - (health.read_seconds or 0.0)
    return None


def reached(runs: Sequence[RunView], wanted: str) -> bool:
    """Whether ``runs`` have reached the state ``wanted``.

    ``warm`` means that every living rank is warm, ``settled`` that the speed of none of them still
    changes, too; every other state means that the least advanced run is in it.
    """
    if wanted == SETTLED:
        living = (rank for run in runs for rank in run.ranks if rank.living)
        changes = any(rank.figures.steps.settled is False for rank in living)
        return all_warm(runs) is True and not changes
    if wanted == State.WARM.value:
        return all_warm(runs) is True
    return bool(runs) and least_advanced(view.state for view in runs).value == wanted


def chosen(snapshot: Snapshot, run: str | None) -> tuple[RunView, ...]:
    """The runs with the public name ``run``, else those with this own name.

    The requesting user is not known, so no user's run takes precedence.

    Raises:
        UnknownRunError: no run of that name; UnreadRunError: none so far.
    """
    if run is None:
        return snapshot.runs
    runs = tuple(view for view in snapshot.runs if view.run == run)
    called = _full if "@" in run else _plain  # an own name cannot pass for another user's run
    runs = runs or tuple(view for view in snapshot.runs if called(view) == run)
    if not runs:
        names = tuple(view.run for view in snapshot.runs)
        if why := incomplete(snapshot) or why_left_out(snapshot, run):
            raise UnreadRunError(run, names, why)
        raise UnknownRunError(run, names)
    return runs


def _plain(view: RunView) -> str | None:
    return view.who.name


def _full(view: RunView) -> str | None:
    return f"{view.who.name}@{view.who.owner}"


def _observed(training: ObservedTraining) -> schema.Observed:
    signs = training.signs
    busy, idle = signs.workers_busy, signs.workers_idle
    workers = None
    if busy is not None and idle is not None:
        workers = Workers(busy=busy, idle=idle)
    return copied(
        training,
        schema.Observed,
        gpus=list(training.gpus),
        workers=workers,
        cpu_ratio=signs.cpu_ratio,
        evidence=unattached_evidence(training),
    )
