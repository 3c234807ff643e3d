"""One entry for each compilation, from the metrics that PyTorch records of it; its counters.

``torch._dynamo.utils.log_compilation_event`` is called for every record; the deque behind
``get_compilation_metrics()`` would keep 64 only. The fields that figures rest on are declared in
``_FIELDS``: where one is missing, so are its figures, and its seam is named.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warmwatch._guard import report
from warmwatch._seams import Installed, Listener, SeamAbsentError, look_up
from warmwatch.hooks.costs import costs
from warmwatch.hooks.reasons import category_of

# How Dynamo says that it leaves a frame to Python: a graph break, not a failure.
_LEFT_TO_PYTHON = (
    "Unsupported",
    "SkipFrame",
    "SkipCodeRecursiveException",
    "RecompileLimitExceeded",
)
_UNTOLD = object()  # torch 2.6 has no such field


def _require(fields: tuple[str, ...], listener: Listener) -> Installed:  # noqa: ARG001
    with look_up():
        from torch._dynamo.utils import CompilationMetrics

        known = CompilationMetrics.__dataclass_fields__
    if absent := [field for field in fields if field not in known]:
        raise SeamAbsentError(f"CompilationMetrics.{absent[0]}")
    return Installed()


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo import utils
        from torch.compiler import disable

        original, counters = utils.log_compilation_event, utils.counters
        reasons = getattr(utils, "graph_break_reasons", ())
    listening = True
    lacking: set[str] = set()

    def log_compilation_event(metrics: Any, *args: Any, **kwargs: Any) -> Any:
        if listening:
            try:
                lacking.update(untold_by(counters, metrics))
                listener.compilation(kind_of(metrics), entry(metrics))
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.compilations", error)
        return original(metrics, *args, **kwargs)

    ours = disable(log_compilation_event)

    def uninstall() -> None:
        nonlocal listening
        listening = False
        if utils.log_compilation_event is ours:
            utils.log_compilation_event = original

    utils.log_compilation_event = ours
    return Installed(
        uninstall=uninstall,
        lacks=lambda: sorted(lacking),
        counters=lambda: read_counters(counters),
        graph_breaks=lambda: read_breaks(counters),
        break_place=lambda reason: break_place(reasons, reason),
    )


# Seams that install nothing: fields of a record, without which some figures are unknown.
_FIELDS = {
    "runtime_compilations": ("is_runtime",),  # not in torch 2.6
    "cache_verdicts": ("inductor_fx_local_cache_hit_count",),  # not in torch 2.6 and 2.8
    "compilation_kinds": ("is_forward",),
    "compilation_ids": ("compile_id",),
    "compilation_failures": ("fail_type",),
    "compilation_details": (
        *("duration_us", "co_name", "co_filename", "co_firstlineno", "graph_op_count"),
        *("guard_count", "dynamo_cumulative_compile_time_us"),
    ),
}
REQUIRED = tuple((name, functools.partial(_require, fields)) for name, fields in _FIELDS.items())


def kind_of(metrics: Any) -> str:
    """One of ``record.KINDS`` for a ``CompilationMetrics``."""
    if getattr(metrics, "is_runtime", False):
        if getattr(metrics, "runtime_cudagraphify_time_us", None):
            return "cudagraph"
        return "autotune" if getattr(metrics, "runtime_triton_autotune_time_us", None) else "other"
    if not hasattr(metrics, "is_forward"):
        return "other"
    if metrics.is_forward is False:
        return "backward"
    # Ahead-of-time Inductor (``aoti_compile_and_package``) and export compile no frame of Dynamo's:
    # that nothing was captured for them does not describe what the training runs.
    return "forward" if getattr(metrics, "co_name", "") is not None else "other"


def entry(metrics: Any) -> dict[str, Any]:
    """The journal's words for a ``CompilationMetrics``: absent where PyTorch does not say."""
    compile_id = getattr(metrics, "compile_id", None)
    values: dict[str, Any] = {"id": None if compile_id is None else str(compile_id)}
    duration = getattr(metrics, "duration_us", None)
    values["seconds"] = duration / 1e6 if duration is not None else None
    where = (getattr(metrics, f"co_{of}", None) for of in ("name", "filename", "firstlineno"))
    values.update(place(*where))
    values["ops"] = getattr(metrics, "graph_op_count", None)
    values["parameters"] = getattr(metrics, "param_numel", None)
    values["cache"] = _cache(metrics)
    values.update(costs(metrics))
    reason = getattr(metrics, "recompile_reason", _UNTOLD)
    # Without a reason there was no compiled entry: what was tried under that id before has failed.
    if _is_recompile(metrics, values["id"]) and reason:
        reason = None if reason is _UNTOLD else str(reason)
        values["reason"] = reason or None
        values["category"] = category_of(reason or "")
    failure = getattr(metrics, "fail_type", None)
    values["cudagraph_skip"] = getattr(metrics, "cudagraph_skip_reason", None)
    if failure and failure.rpartition(".")[2] not in _LEFT_TO_PYTHON:
        values["failure"] = failure
    elif failure:  # a failure where the frame has to be one graph, see ``_asked.Compiling``
        values["left"] = failure
        values["failure_reason"] = getattr(metrics, "fail_reason", None)
    return {key: value for key, value in values.items() if value is not None}


def place(name: str | None, file: str | None, line: int | None) -> dict[str, Any]:
    """Where the user's function is: of its file the base name, which is all that leaves us."""
    return {"name": name, "file": file.rpartition("/")[2] if file else None, "line": line}


def _is_recompile(metrics: Any, compile_id: str | None) -> bool:
    """A forward compilation of a frame that was compiled before: ``0/1``, but not ``0/0``."""
    if compile_id is None or kind_of(metrics) != "forward":
        return False
    frame_compile_id = compile_id.rpartition("/")[2].partition("_")[0]
    return frame_compile_id not in ("", "0")


def _cache(metrics: Any) -> str | None:
    hits, misses = (
        sum(
            getattr(metrics, f"{cache}_{where}_cache_{verdict}_count", 0) or 0
            for cache in ("inductor_fx", "aotautograd")
            for where in ("local", "remote")
        )
        for verdict in ("hit", "miss")
    )
    if misses:
        return "miss"
    return "hit" if hits else None


def untold_by(counters: Mapping[str, Mapping[str, int]], metrics: Any) -> Iterator[str]:
    """Counters that ought to have risen by this compilation, and are not there.

    Their names are keys that only exist once they have risen. A user may clear them, but not while
    this thread compiles.
    """
    if getattr(metrics, "is_runtime", False) or getattr(metrics, "fail_type", None):
        return

    def of(group: str, *names: str) -> bool:
        return group in counters and any(counters[group].get(name) for name in names)

    graph = kind_of(metrics) == "forward" and getattr(metrics, "graph_op_count", None)
    if graph and not of("stats", "unique_graphs"):
        yield "graph_counter"
    if getattr(metrics, "num_graph_breaks", None) and not counters.get("graph_break"):
        yield "graph_break_counter"
    verdicts = ("hit", "miss")
    asked = (getattr(metrics, f"inductor_fx_local_cache_{one}_count", 0) for one in verdicts)
    if any(asked) and not of("inductor", *(f"fxgraph_cache_{one}" for one in verdicts)):
        yield "cache_counters"


def read_breaks(counters: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """How often each reason broke a graph. Creates no key."""
    return dict(counters["graph_break"]) if "graph_break" in counters else {}


def break_place(reasons: Sequence[Any], reason: str) -> dict[str, Any]:
    """Where ``reason`` last broke a graph: the innermost line of the user's, where it was kept."""
    head = reason.strip().partition("\n")[0]
    for one in reversed(reasons):
        if str(one.reason).strip().partition("\n")[0] == head and one.user_stack:
            frame = one.user_stack[-1]
            return place(frame.name, frame.filename, frame.lineno)
    return {}


def read_counters(counters: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Dynamo's cumulative counters, by the names of the slot's words. Creates no key."""

    def of(group: str, name: str) -> int:
        return counters[group].get(name, 0) if group in counters else 0

    breaks = counters["graph_break"].values() if "graph_break" in counters else ()
    return {
        "graphs": of("stats", "unique_graphs"),
        "graph_breaks": sum(breaks),
        "cudagraph_skips": of("inductor", "cudagraph_skips"),
        "cache_hits.inductor_fx": of("inductor", "fxgraph_cache_hit"),
        "cache_misses.inductor_fx": of("inductor", "fxgraph_cache_miss"),
        "cache_hits.aot_autograd": of("aot_autograd", "autograd_cache_hit"),
        "cache_misses.aot_autograd": of("aot_autograd", "autograd_cache_miss"),
    }
