"""What one compilation cost, from the metrics that PyTorch records of it: compact and bounded.

PyTorch's phase times contain each other (Dynamo's holds AOTAutograd's, which holds Inductor's,
which holds that of kernels and of autotuning); here each is what is its own, so they add up. What
a version does not tell is absent. Kernels have names that Inductor made.
"""

from __future__ import annotations

import json
from typing import Any

_SLOWEST = 3
# from the outermost in, with the phase of what is left when the next one is taken out
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
    """The journal's words for what a ``CompilationMetrics`` says of costs."""
    guard_us = getattr(metrics, "guard_latency_us", None)
    return {
        "phase_us": phases(metrics) or None,
        "guards": getattr(metrics, "guard_count", None),
        "guard_us": None if guard_us is None else int(guard_us),
        "slowest": slowest(getattr(metrics, "triton_kernel_compile_times_us", None)) or None,
    }


def phases(metrics: Any) -> dict[str, int]:
    """Microseconds of each phase without those inside it; those that took any."""
    if getattr(metrics, "is_runtime", False):
        return {
            phase: took for field, phase in _AT_RUN_TIME.items() if (took := _us(metrics, field))
        }
    found = {phase: took for field, phase in _INNERMOST.items() if (took := _us(metrics, field))}
    inside = sum(found.values())
    for fields, phase in reversed(_NESTED):
        whole = sum(_us(metrics, field) for field in fields)
        found[phase] = max(0, whole - inside)
        inside = max(inside, whole)
    return {phase: took for phase, took in found.items() if took}


def _us(metrics: Any, field: str) -> int:
    return int(getattr(metrics, field, None) or 0)


def slowest(told: str | None) -> list[list[Any]]:
    """``[[name, microseconds], ...]`` of the kernels that took longest to compile.

    PyTorch tells them as JSON, the slowest first, 25 at most.
    """
    if not told:
        return []
    try:
        pairs = [(str(name), int(took)) for name, took in json.loads(told)]
    except (ValueError, TypeError):
        return []
    longest = sorted(pairs, key=lambda pair: -pair[1])[:_SLOWEST]
    return [[name[:100], took] for name, took in longest]
