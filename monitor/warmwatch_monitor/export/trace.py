"""A run summary in the trace event format, for Perfetto and chrome://tracing. Pure.

One process per rank, with threads for compilations (and their phases), states and the warm-up, and
counters for steps and their length; one process for the GPUs. Times are microseconds since the run
began. Only the length of a phase is recorded, so the phases of a compilation are placed one after
another, from its begin on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warmwatch.shared.phrases import place
from warmwatch_monitor.model import PHASES
from warmwatch_monitor.model.run_summary import FARTHEST, Compiled, RankSummary, RunSummary, Samples

_GPUS = 1_000_000  # pid of the GPUs' process, larger than any rank
_STATES, _WARMUP, _COMPILATIONS = 1, 2, 3
_THREADS = {_STATES: "state", _WARMUP: "warm-up"}
_STEPS = {"steps": "steps", "step_seconds": "step seconds", "compile_seconds": "compile seconds"}
_OF_GPUS = {
    "power_watts": "power (W)",
    "utilization_ratio": "utilization (ratio)",
    "memory_used_bytes": "memory used (bytes)",
}

Event = dict[str, Any]


def trace(summary: RunSummary) -> dict[str, Any]:
    """The whole file: a JSON object."""
    return {
        "displayTimeUnit": "ms",
        "otherData": {"run": summary.run, "id": summary.id, "began": summary.began},
        "traceEvents": [
            *(event for one in summary.ranks for event in _rank(one, summary)),
            *_gpus(summary),
        ],
    }


def _rank(one: RankSummary, summary: RunSummary) -> Iterator[Event]:
    yield _named("process_name", one.rank, f"{summary.run} rank {one.rank}")
    yield {**_meta("process_sort_index", one.rank), "args": {"sort_index": one.rank}}
    for thread, name in _THREADS.items():
        yield _named("thread_name", one.rank, name, thread)
    yield from _compilations(one, summary.began)
    yield from _warmups(one, summary)
    if one.samples is not None:
        yield from _stretches(one.samples, one.rank, summary.began)
        yield from _counters(one.samples, _STEPS, one.rank, summary.began)


def _compilations(one: RankSummary, began: float) -> Iterator[Event]:
    """Slices of compilations; overlapping ones get separate threads, as viewers require."""
    ends: list[float] = []
    for compiled in sorted(one.compiled, key=_begin):
        begin = _begin(compiled)
        lane = next((at for at, end in enumerate(ends) if end <= begin), len(ends))
        ends[lane:] = [compiled.ended, *ends[lane + 1 :]]
        yield from _compiled(compiled, one.rank, _COMPILATIONS + lane, began)
    for lane in range(len(ends)):
        name = f"compilations {lane + 1}" if lane else "compilations"
        yield _named("thread_name", one.rank, name, _COMPILATIONS + lane)


def _begin(one: Compiled) -> float:
    return one.ended - (one.seconds or 0.0)


def _compiled(one: Compiled, pid: int, tid: int, began: float) -> Iterator[Event]:
    """The slice of a compilation, and those of its phases."""
    name = f"{one.kind} {place(one.name, one.file, one.line).replace('`', '')}".strip()
    args = {
        key: value
        for key in ("id", "step", "reason", "category", "cache", "failure", "ops", "kernels")
        if (value := getattr(one, key)) is not None
    }
    begin = _begin(one)
    yield _slice(name, one.kind, pid, tid, begin - began, one.ended - began, args)
    for phase in PHASES:
        if seconds := one.phase_seconds.get(phase):
            end = min(begin + seconds, one.ended)
            yield _slice(phase, "phase", pid, tid, begin - began, end - began, {})
            begin = end


def _warmups(one: RankSummary, summary: RunSummary) -> Iterator[Event]:
    """The slice of the first warm-up."""
    first = one.answer["warmup"].get("first")
    if first:
        end = first["ended_at"] - summary.began
        begin = end - first["seconds"]
        yield _slice("warm-up", "warm-up", one.rank, _WARMUP, begin, end, {})


def _stretches(seen: Samples, pid: int, began: float) -> Iterator[Event]:
    """A slice for each period in one state."""
    states = seen.columns.get("state", ())
    begin = 0
    for at in range(1, len(states) + 1):
        if at == len(states) or states[at] != states[begin]:
            if states[begin] is not None:
                since = seen.epochs[begin]
                until = seen.epochs[at] if at < len(states) else seen.epochs[-1] + seen.seconds
                name = str(states[begin])
                yield _slice(name, "state", pid, _STATES, since - began, until - began, {})
            begin = at


def _gpus(summary: RunSummary) -> Iterator[Event]:
    if not summary.gpu_samples:
        return
    yield _named("process_name", _GPUS, "GPUs")
    yield {**_meta("process_sort_index", _GPUS), "args": {"sort_index": _GPUS}}
    for at, (uuid, seen) in enumerate(sorted(summary.gpu_samples.items())):
        names = {column: f"GPU {at} {name}" for column, name in _OF_GPUS.items()}
        for event in _counters(seen, names, _GPUS, summary.began):
            yield {**event, "id": uuid}


def _counters(seen: Samples, names: Mapping[str, str], pid: int, began: float) -> Iterator[Event]:
    """Counter events of each numeric column; unknown values are left out."""
    for column, name in names.items():
        values: Sequence[float | str | None] = seen.columns.get(column, ())
        for epoch, value in zip(seen.epochs, values, strict=False):
            if isinstance(value, int | float):
                yield {
                    "ph": "C",
                    "name": name,
                    "pid": pid,
                    "ts": _us(epoch - began),
                    "args": {"value": value},
                }


def _slice(
    name: str, kind: str, pid: int, tid: int, begin: float, end: float, args: Mapping[str, Any]
) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": pid,
        "tid": tid,
        "ts": _us(begin),
        "dur": _us(end) - _us(begin),
        "args": dict(args),
    }


def _named(what: str, pid: int, name: str, tid: int | None = None) -> Event:
    return {**_meta(what, pid, tid), "args": {"name": name}}


def _meta(what: str, pid: int, tid: int | None = None) -> Event:
    return {"ph": "M", "name": what, "pid": pid, **({} if tid is None else {"tid": tid})}


def _us(seconds: float) -> int:
    """Microseconds as an integer within 64 bits; viewers round fractions, so slices overlap."""
    return round(max(-FARTHEST, min(FARTHEST, seconds)) * 1e6)
