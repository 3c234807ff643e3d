"""One journal entry for each compilation, from PyTorch's ``CompilationMetrics``.

PyTorch calls one function with each of these; if it renames the function, put the new name first
in ``NAMES``.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from warmwatch.hooks.dynamo.breaks import Breaks, hint_of, raised_at
from warmwatch.hooks.dynamo.events import must_be_one_graph
from warmwatch.hooks.dynamo.recompile_reasons import category_of
from warmwatch.hooks.points import (
    HookPointAbsentError,
    Installed,
    Listener,
    Replaced,
    first_of,
    look_up,
    untraced,
)
from warmwatch.hooks.redaction import hint_of_failure
from warmwatch.shared.fallbacks import SUPPRESSED
from warmwatch.shared.user_code import place

NAMES = ("log_compilation_event",)  # names of the function, newest first
_SLOWEST = 3
# outermost first; each with the phase of its time outside the next one
_NESTED = (
    (("dynamo_cumulative_compile_time_us",), "dynamo"),
    (
        (
            "aot_autograd_cumulative_compile_time_us",
            "backward_cumulative_compile_time_us",
        ),
        "aot_autograd",
    ),
    (("inductor_cumulative_compile_time_us",), "inductor"),
)
_INNERMOST = {
    "triton_compile_time_us": "kernel_compile",
    "compile_time_autotune_time_us": "autotune",
}
_AT_RUN_TIME = {
    "runtime_triton_autotune_time_us": "autotune",
    "runtime_cudagraphify_time_us": "cudagraph",
}


def costs(metrics: Any) -> dict[str, Any]:
    """Journal values for the costs in a ``CompilationMetrics``."""
    guard_us = getattr(metrics, "guard_latency_us", None)
    return {
        "phase_us": phases(metrics) or None,
        "guards": getattr(metrics, "guard_count", None),
        "guard_us": None if guard_us is None else int(guard_us),
        "slowest": slowest(getattr(metrics, "triton_kernel_compile_times_us", None)) or None,
    }


def phases(metrics: Any) -> dict[str, int]:
    """Microseconds of each phase, without nested phases; phases without time are absent."""
    if getattr(metrics, "is_runtime", False):
        return {
            phase: took for field, phase in _AT_RUN_TIME.items() if (took := _us(metrics, field))
        }
    counts = {phase: took for field, phase in _INNERMOST.items() if (took := _us(metrics, field))}
    inside = sum(counts.values())
    for fields, phase in reversed(_NESTED):
        whole = sum(_us(metrics, field) for field in fields)
        counts[phase] = max(0, whole - inside)
        inside = max(inside, whole)
    return {phase: took for phase, took in counts.items() if took}


def _us(metrics: Any, field: str) -> int:
    return int(getattr(metrics, field, None) or 0)


def slowest(kernels_json: str | None) -> list[list[Any]]:
    """``[[name, microseconds], ...]`` of the kernels that took longest to compile.

    PyTorch reports them as JSON, slowest first, at most 25.
    """
    if not kernels_json:
        return []
    try:
        pairs = [(str(name), int(took)) for name, took in json.loads(kernels_json)]
    except (ValueError, TypeError):
        return []
    longest = sorted(pairs, key=lambda pair: -pair[1])[:_SLOWEST]
    return [[name[:100], took] for name, took in longest]


# Dynamo raises these to leave a frame to Python: a graph break, not a failure.
_LEFT_TO_PYTHON = (
    "Unsupported",
    "SkipFrame",
    "SkipCodeRecursiveException",
    "RecompileLimitExceeded",
)
# They quote the exception of a backend, or are of a number that is known only when the code runs.
_OWN_TEXTS = (
    *("BackendCompilerFailed", "InductorError"),
    *("UserError", "GuardOnDataDependentSymNode"),
)
# Raised after the tracing, so the traced line is the last one of the function
_OF_BACKEND = ("BackendCompilerFailed", "InductorError")
# Raised also under ``config.suppress_errors``
_UNSUPPRESSED = ("UncapturedHigherOrderOpError", "ResumePrologueTracingError")
_REFUSED = "RecompileError"  # raised for `config.error_on_recompile`, not at the recompile limit
RECORDS_SETTING = "log_compilation_metrics"  # if it is off, PyTorch passes no record
_ABSENT = object()  # default for a field that torch 2.6 lacks


def _require(fields: tuple[str, ...], listener: Listener) -> Installed:  # noqa: ARG001
    with look_up():
        from torch._dynamo.utils import CompilationMetrics

        value = CompilationMetrics.__dataclass_fields__
    if absent := [field for field in fields if field not in value]:
        raise HookPointAbsentError(f"CompilationMetrics.{absent[0]}")
    return Installed()


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo import config, utils

        name, counters = first_of(utils, NAMES), utils.counters
        original = getattr(utils, name)
        reasons = getattr(utils, "graph_break_reasons", None)
    replaced, breaks = Replaced(), Breaks(counters, () if reasons is None else reasons)
    lacking = set() if reasons is not None else {"graph_break_places"}

    def report_compilation(metrics: Any) -> None:
        lacking.update(missing_counters(counters, metrics))
        raised = sys.exc_info()[1]
        kind, one_graph = kind_of(metrics), must_be_one_graph()
        values = entry(metrics, raised, one_graph=one_graph)
        listener.post("compilation", {"kind": kind, **values})
        fails = values.get("failure") not in (None, *_UNSUPPRESSED)
        if fails and kind == "forward" and not one_graph and config.suppress_errors:
            where = {field: values.get(field) for field in ("id", "name", "file", "line")}
            listener.post("fallback", {"setting": SUPPRESSED, **where})

    def log_compilation(metrics: Any, *args: Any, **kwargs: Any) -> Any:
        if replaced.listening:
            untraced("hooks.compilations", breaks.compiled, metrics)
            untraced("hooks.compilations", report_compilation, metrics)
        return original(metrics, *args, **kwargs)

    def lacks() -> list[str]:
        # Compilations without a record stay unknown after the setting is on again.
        if not getattr(config, RECORDS_SETTING, True):
            lacking.update(("compilations", RECORDS_SETTING))
        return sorted(lacking)

    replaced.put(utils, name, log_compilation)
    return Installed(
        uninstall=replaced.undo,
        lacks=lacks,
        counters=breaks.counters,
        graph_breaks=breaks.by_reason,
        break_place=breaks.place,
    )


# Hook points that install nothing: fields of a record, without which some figures are unknown.
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
    # Ahead-of-time Inductor (``aoti_compile_and_package``) and export compile no frame for Dynamo.
    # Their missing graphs do not describe what the training runs. A frame that hits the recompile
    # limit has no name yet, but an id: it is a recompile.
    named = any(getattr(metrics, field, "") is not None for field in ("co_name", "compile_id"))
    return "forward" if named else "other"


def entry(
    metrics: Any, raised: BaseException | None = None, *, one_graph: bool = False
) -> dict[str, Any]:
    """Journal values for a ``CompilationMetrics``; what PyTorch does not report is absent.

    ``raised``: the exception that ended it. ``one_graph``: a graph break raises.
    """
    compile_id = getattr(metrics, "compile_id", None)
    values: dict[str, Any] = {"id": None if compile_id is None else str(compile_id)}
    duration = getattr(metrics, "duration_us", None)
    values["seconds"] = duration / 1e6 if duration is not None else None
    location = (
        getattr(metrics, f"co_{field}", None) for field in ("name", "filename", "firstlineno")
    )
    values.update(place(*location))
    values["ops"] = getattr(metrics, "graph_op_count", None)
    values["parameters"] = getattr(metrics, "param_numel", None)
    values["cache"] = _cache(metrics)
    values.update(costs(metrics))
    reason = getattr(metrics, "recompile_reason", _ABSENT)
    failure = getattr(metrics, "fail_type", None)
    refused = (failure or "").rpartition(".")[2] == _REFUSED
    # No reason means no compiled entry: the earlier attempt with that id failed.
    if _is_recompile(metrics, values["id"]) and reason and not refused:
        reason = None if reason is _ABSENT else str(reason)
        values["reason"] = reason or None
        values["category"] = category_of(reason or "")
    # PyTorch names a frame once it compiles it, which it does not at the recompile limit.
    if kind_of(metrics) == "forward" and getattr(metrics, "co_name", "") is None and not refused:
        values["at_limit"] = True
    values["cudagraph_skip"] = getattr(metrics, "cudagraph_skip_reason", None)
    if failure:
        name, text = failure.rpartition(".")[2], getattr(metrics, "fail_reason", None)
        left = name in _LEFT_TO_PYTHON
        if left and not one_graph:
            return _known(values)  # no failure: the frame is left to Python
        values["failure"] = failure
        # PyTorch's own texts; that of another exception may be the user's
        if left or name in _OWN_TEXTS:
            values["failure_reason"] = text
        values["failure_hint"] = (hint_of if left else hint_of_failure)(str(text or ""))
        if name not in _OF_BACKEND:
            values["failed_at"] = raised_at(raised) or None
    if kind_of(metrics) == "cudagraph" and getattr(metrics, "is_forward", None) is False:
        values["backward"] = True
    return _known(values)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _is_recompile(metrics: Any, compile_id: str | None) -> bool:
    """A forward compilation of a frame that was compiled before, such as ``0/1``."""
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


def missing_counters(counters: Mapping[str, Mapping[str, int]], metrics: Any) -> Iterator[str]:
    """Counters that this compilation should have increased, but that do not exist.

    PyTorch creates their keys at the first increment. A user may clear them, but not while this
    thread compiles.
    """
    if getattr(metrics, "is_runtime", False) or getattr(metrics, "fail_type", None):
        return

    def counts(group: str, *names: str) -> bool:
        return group in counters and any(counters[group].get(name) for name in names)

    graph = kind_of(metrics) == "forward" and getattr(metrics, "graph_op_count", None)
    if graph and not counts("stats", "unique_graphs"):
        yield "graph_counter"
    if getattr(metrics, "num_graph_breaks", None) and not counters.get("graph_break"):
        yield "graph_break_counter"
    verdicts = ("hit", "miss")
    lookups = (
        getattr(metrics, f"inductor_fx_local_cache_{verdict}_count", 0) for verdict in verdicts
    )
    if any(lookups) and not counts(
        "inductor", *(f"fxgraph_cache_{verdict}" for verdict in verdicts)
    ):
        yield "cache_counters"
