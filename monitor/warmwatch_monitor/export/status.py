"""The ``/status`` answer: one Snapshot as the contract's JSON object.

Pure; the keys are public (schema version 1: keys may be added, none changes its meaning). What
is not known is ``null``. Times are seconds since the epoch, durations seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from warmwatch.record import (
    CACHES,
    PHASES,
    CompileCounts,
    Slot,
    Warmup,
    quantile_ns,
)
from warmwatch.verdict import State, least_advanced
from warmwatch_monitor.errors import UnknownRunError
from warmwatch_monitor.export import figures, ranks
from warmwatch_monitor.export.advice import advice
from warmwatch_monitor.export.conditions import conditions
from warmwatch_monitor.export.cost import energy, run_cost
from warmwatch_monitor.export.evidence import evidence
from warmwatch_monitor.export.gpus import gpu
from warmwatch_monitor.export.observed import observed
from warmwatch_monitor.export.sentence import run_sentence, summary
from warmwatch_monitor.model import Compilation, RankView, RunView, Snapshot

SCHEMA_VERSION = 1
LAST = 5
_FX = CACHES.index("inductor_fx")


def status(snapshot: Snapshot, run: str | None = None) -> dict[str, Any]:
    """The whole answer, or with ``run`` that of one run alone.

    Raises:
        UnknownRunError: no run of that name; the message lists those there are.
    """
    runs = _chosen(snapshot, run)
    views = [view for chosen in runs for view in chosen.ranks]
    one = run_sentence(runs[0], snapshot.now_ns) if run is not None else summary(snapshot)
    return {
        "schema_version": SCHEMA_VERSION,
        "at": read_at(snapshot),
        "compiling": figures.any_compiling(views),
        "warm": figures.all_warm(views),
        "summary": one,
        "runs": [_run(chosen, snapshot.now_ns) for chosen in runs],
        "observed": [observed(training) for training in snapshot.observed],
        "gpus": [gpu(reading, snapshot.now_ns) for reading in snapshot.gpus],
        "host": asdict(snapshot.host) if snapshot.host else None,
        "sources": [asdict(health) for health in snapshot.sources],
        "exports": [asdict(health) for health in snapshot.exports],
        "directories": list(snapshot.directories),
        "refusals": [asdict(refusal) for refusal in snapshot.refusals],
    }


def read_at(snapshot: Snapshot) -> float | None:
    """When the look at the records began that the answer rests on: what was recorded by then is in.

    ``None`` where none of this answer was read of records: there are none, or not any more.
    """
    for health in snapshot.sources:
        if health.source == "records" and health.up and health.last_success is not None:
            return health.last_success - (health.read_seconds or 0.0)
    return None


def reached(snapshot: Snapshot, wanted: str, run: str | None = None) -> bool:
    """Whether the whole answer, or that of ``run``, is where ``wanted`` says.

    ``warm`` means that nothing is left to wait for, in any living rank; every other state means
    that the least advanced of the runs is in it.

    Raises:
        UnknownRunError: no run of that name.
    """
    runs = _chosen(snapshot, run)
    if wanted == State.WARM.value:
        return figures.all_warm(view for chosen in runs for view in chosen.ranks) is True
    return bool(runs) and least_advanced(chosen.state for chosen in runs).value == wanted


def _chosen(snapshot: Snapshot, run: str | None) -> Sequence[RunView]:
    if run is None:
        return snapshot.runs
    chosen = [view for view in snapshot.runs if view.run == run]
    if not chosen:
        raise UnknownRunError(run, tuple(view.run for view in snapshot.runs))
    return chosen


def _run(run: RunView, now_ns: int) -> dict[str, Any]:
    return {
        "run": run.run,
        "state": run.state.value,
        "compiling": figures.any_compiling(run.ranks),
        "warm": figures.all_warm(run.ranks),
        "summary": run_sentence(run, now_ns),
        **run_cost(run, now_ns),
        "world_size": ranks.world_size(run),
        "missing_ranks": ranks.missing(run),
        "skew": ranks.skew(run, now_ns),
        "ranks": [_rank(view, now_ns) for view in run.ranks],
    }


def _rank(view: RankView, now_ns: int) -> dict[str, Any]:
    slot, judgement = view.reading.slot, view.judgement
    return {
        "rank": view.rank,
        "state": judgement.state.value,
        "since": _epoch(slot, judgement.since_ns),
        "steps": slot.steps.steps,
        "clean_steps": judgement.clean_steps,
        "compile": _compile(view, now_ns),
        "warmup": _warmup(slot),
        "step_seconds": _step_seconds(slot),
        "cost": _cost(slot),
        "conditions": [{"condition": name, "words": words} for name, words in conditions(view)],
        "gpus": list(figures.gpu_uuids(view)),
        "energy": energy(view),
        "evidence": evidence(view, now_ns),
        "pid": view.reading.pid,
        "host": slot.identity.host or None,
        "attempt": slot.identity.attempt,
        "alive": view.reading.alive,
        "process": _process(view),
        "agent_errors": slot.compile.agent_errors,
    }


def _compile(view: RankView, now_ns: int) -> dict[str, Any]:
    slot = view.reading.slot
    phase_ns = figures.phase_ns(view, now_ns)
    seconds = {name: ns / 1e9 for name, ns in zip(PHASES, phase_ns, strict=True) if ns}
    return {
        "phase": view.judgement.phase,
        "seconds": sum(phase_ns) / 1e9,
        "gpu_seconds": figures.gpu_seconds(view, now_ns),
        "phase_seconds": seconds,
        **_counts(slot.compile, told=figures.tells(slot, "compilations")),
        "fallbacks": slot.compile.fallbacks if figures.tells(slot, "recompile_limit") else None,
        "last": [_compilation(c) for c in view.reading.compilations[-LAST:]],
    }


def _counts(compile: CompileCounts, *, told: bool) -> dict[str, Any]:
    """What PyTorch counts; each ``None`` where this one keeps no records of its compilations."""
    counts = {
        "compilations": figures.compilations(compile),
        "graphs": compile.graphs,
        "recompiles": sum(compile.recompiles),
        "recompiles_after_warm": compile.recompiles_after_warm,
        "graph_breaks": compile.graph_breaks,
        "cache_hits": compile.cache_hits[_FX],
        "cache_misses": compile.cache_misses[_FX],
        "caches": {
            cache: {"hits": hits, "misses": misses}
            for cache, hits, misses in zip(
                CACHES, compile.cache_hits, compile.cache_misses, strict=True
            )
        },
        "failures": compile.failures,
    }
    return counts if told else dict.fromkeys(counts)


def _compilation(compilation: Compilation) -> dict[str, Any]:
    return {
        "id": compilation.id,
        "kind": compilation.kind,
        "seconds": compilation.seconds,
        "reason": compilation.reason,
        "category": compilation.category,
        "advice": advice(compilation.category),
        "name": compilation.name,
        "cache": compilation.cache,
        "failure": compilation.failure,
    }


def _warmup(slot: Slot) -> dict[str, Any]:
    latest, compile = figures.ended_warmup(slot), slot.compile
    return {
        "ended": latest is not None,
        **_one_warmup(slot, latest),
        "count": compile.warmups,
        "first": _one_warmup(slot, compile.first_warmup) if compile.warmups else None,
    }


def _one_warmup(slot: Slot, warmup: Warmup | None) -> dict[str, Any]:
    if warmup is None:
        return {"ended_at": None, "seconds": None, "steps": None}
    return {
        "ended_at": _epoch(slot, warmup.ended_ns),
        "seconds": (warmup.ended_ns - warmup.began_ns) / 1e9,
        "steps": warmup.steps,
    }


def _step_seconds(slot: Slot) -> dict[str, float | None]:
    return {
        "first": _seconds(slot.compile.first_duration_ns),
        "last": _seconds(slot.steps.last_duration_ns),
        "median": _seconds(figures.median_step_ns(slot)),
        "p99": _seconds(quantile_ns(slot.clean_bins, 0.99)),
    }


def _cost(slot: Slot) -> dict[str, float | int | None]:
    """What the compiler cost so far: how much longer than clean steps the touched ones took."""
    median_ns, touched = figures.median_step_ns(slot), sum(slot.compile_bins)
    beyond = None
    if median_ns is not None and touched:
        beyond = (slot.compile.compile_step_sum_ns - touched * median_ns) / 1e9
    return {
        "first_step_seconds": _seconds(slot.compile.first_duration_ns),
        "steady_step_seconds": _seconds(median_ns),
        "beyond_steady_seconds": beyond,
        "steps_touched": touched,
    }


def _process(view: RankView) -> dict[str, Any] | None:
    if view.process is None:
        return None
    known = asdict(view.process)
    del known["pid"]
    return known


def _epoch(slot: Slot, monotonic_ns: int | None) -> float | None:
    return slot.header.epoch_seconds(monotonic_ns) if monotonic_ns else None


def _seconds(ns: float | None) -> float | None:
    """Nanoseconds of the record, where 0 is "not known", in seconds."""
    return ns / 1e9 if ns else None
