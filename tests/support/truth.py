"""PyTorch's own account of its compilations: the truth that the agent is compared with.

Shares no code, hook point or clock reading with the agent. A training calls ``recorded()`` once, at
its end; nothing is hooked. Two sources, of two different runs:

- ``recorded()``: the records behind ``get_compilation_metrics()``, without a limit, and Dynamo's
  counters. One offset turns wall-clock times into monotonic ones, to compare them with others.
- ``traced()``: the structured trace (``TORCH_TRACE``) of a run without the agent: graphs, breaks
  and recompiles as entries of a log, and the begin and end of every timed event. Where PyTorch
  has no record of a compilation, the run with the agent is traced too.

Where this PyTorch does not report a value, its key is absent or ``None``.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

LIMIT = 100_000
_RECORDS = tuple(
    f"{way}compilation_metrics{when}" for way in ("", "bwd_") for when in ("", "_runtime")
)
_FIELDS = ("compile_id", "is_forward", "co_name", "recompile_reason", "num_graph_breaks")
_ENTRY = re.compile(r"^V\d{4} \S+ (\d+) [^\]]*\] (\{.*)$")

Interval = tuple[int, int]


def begin() -> None:
    """Keep every record from here on, not the last 64. Costs the import of Dynamo."""
    from torch._dynamo.utils import set_compilation_metrics_limit

    set_compilation_metrics_limit(LIMIT)


def recorded() -> dict[str, Any]:
    """PyTorch's own account of this process, ready for JSON."""
    from torch._dynamo.utils import counters, get_compilation_metrics

    offset = _offset()
    return {
        "offset": offset,
        "pid": os.getpid(),
        "compilations": [_record(entry, offset) for entry in get_compilation_metrics()],
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "cudagraph_skips": counters["inductor"]["cudagraph_skips"],
        "caches": {
            f"{cache}_{verdict}": counters[group][f"{name}_{verdict}"]
            for cache, group, name in (
                ("inductor_fx", "inductor", "fxgraph_cache"),
                ("aot_autograd", "aot_autograd", "autograd_cache"),
            )
            for verdict in ("hit", "miss")
        },
    }


def _offset() -> int:
    """Wall clock less monotonic: of many readings, the one that took least between the two.

    A thread that loses its core between two readings of clocks would move all of the truth.
    """
    readings = []
    for _ in range(100):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, wall - (before + after) // 2))
    return min(readings)[1]


def _record(entry: Any, offset: int) -> dict[str, Any]:
    fields = {name: getattr(entry, name, None) for name in _FIELDS}
    duration = entry.duration_us
    return {
        **fields,
        "fail": entry.fail_type,
        "runtime": bool(getattr(entry, "is_runtime", False)),
        "start": entry.start_time_us * 1000 - offset,
        "end": entry.end_time_us * 1000 - offset,
        "seconds": None if duration is None else duration / 1e6,
    }


def intervals(account: dict[str, Any]) -> list[Interval]:
    """When PyTorch compiled anything, in monotonic nanoseconds: merged, in order."""
    return merged(map(_interval, account["compilations"]))


def beside(account: dict[str, Any]) -> list[Interval]:
    """When another compiler was at work, recorded by the training itself."""
    return merged((one["start"], one["end"]) for one in account["beside"])


def _interval(one: dict[str, Any]) -> Interval:
    """A record's interval. One made at run time begins its clock when its first event has ended
    (a kernel tuned, a CUDA graph recorded) and stops it when the compiled call returns."""
    if not one["runtime"]:
        return one["start"], one["end"]
    return one["start"] - round((one["seconds"] or 0.0) * 1e9), one["start"]


def monotonic(account: dict[str, Any], trace: dict[str, Any]) -> list[Interval]:
    """When the trace of the same run has any event open, in monotonic nanoseconds."""
    offset = account["offset"]
    return [(start - offset, end - offset) for start, end in trace["intervals"]]


def merged(parts: Iterable[Interval]) -> list[Interval]:
    """The union of intervals as disjoint ones, in order."""
    whole: list[Interval] = []
    for start, end in sorted(parts):
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((start, end))
    return whole


def seconds(parts: Iterable[Interval]) -> float:
    """How long the union of intervals is."""
    return sum(end - start for start, end in merged(parts)) / 1e9


def traced(folder: Path, pid: int) -> dict[str, Any]:
    """What process ``pid`` put into the trace in ``folder``: counts, and when events were open.

    Its compile workers write there too; what they do while the training goes on is not its own.
    """
    entries = [entry for log in sorted(folder.glob("*.log")) for entry in _entries(log, pid)]
    artifacts = [head["artifact"].get("name") for head, _ in entries if "artifact" in head]
    return {
        "graphs": sum("dynamo_output_graph" in head for head, _ in entries),
        "breaks": artifacts.count("dynamo_graph_break_reason"),
        "recompiles": artifacts.count("recompile_reasons"),
        "records": sum(key in head for head, _ in entries for key in _RECORDS),
        "intervals": merged(_open(entries)),
        "windows": merged(_windows(entries)),
    }


def _entries(log: Path, pid: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Head and payload of each entry by process ``pid``."""
    head: dict[str, Any] | None = None
    payload: list[str] = []
    for line in log.read_text().splitlines():
        if found := _ENTRY.match(line):
            if head is not None:
                yield head, "\n".join(payload)
            head, payload = (json.loads(found[2]) if int(found[1]) == pid else None), []
        else:
            payload.append(line.removeprefix("\t"))
    if head is not None:
        yield head, "\n".join(payload)


def _open(entries: Iterable[tuple[dict[str, Any], str]]) -> Iterator[Interval]:
    """When any event was open on any thread, in wall-clock nanoseconds.

    PyTorch 2.8 hashes its own sources when ``torch.compile`` is called: no model is compiled then.
    """
    depth = began = 0
    for head, payload in entries:
        if "chromium_event" not in head:
            continue
        event = json.loads(payload)
        if event["name"] == "inductor_codecache_torch_key":
            continue
        at, change = int(event["ts"] * 1000), {"B": 1, "E": -1}.get(event["ph"], 0)
        if change and not depth:
            began = at
        depth += change
        if change and not depth:
            yield began, at


def _windows(entries: Iterable[tuple[dict[str, Any], str]]) -> Iterator[Interval]:
    """From the begin to the end of each record in the trace, in wall-clock nanoseconds.

    One made at run time begins its clock late, see ``_interval``: its events came before.
    """
    for head, _ in entries:
        for key in _RECORDS:
            if key in head:
                early = head[key].get("duration_us") or 0 if key.endswith("_runtime") else 0
                yield (head[key]["start_time_us"] - early) * 1000, head[key]["end_time_us"] * 1000
