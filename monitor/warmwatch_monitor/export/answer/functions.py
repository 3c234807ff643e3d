"""What each function cost, as JSON: the dearest, and the others in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warmwatch_monitor.export.words.wording import place
from warmwatch_monitor.model import FunctionCost

MOST = 10


def functions(costs: Sequence[FunctionCost] | None) -> list[dict[str, Any]] | None:
    """The MOST dearest; ``None`` where nobody knows."""
    return None if costs is None else [_function(one) for one in costs[:MOST]]


def _function(one: FunctionCost) -> dict[str, Any]:
    cost = one.cost
    return {
        "called": called(one.name, one.file, one.line),
        "name": one.name,
        "file": one.file,
        "line": one.line,
        "others": one.others,
        "compilations": one.compilations,
        "failures": one.failures,
        "seconds": one.seconds,
        "phase_seconds": dict(cost.phase_seconds),
        "ops": cost.ops,
        "cache_hits": one.cache_hits,
        "cache_misses": one.cache_misses,
        "guards": cost.guards,
        "guard_seconds": cost.guard_seconds,
        "kernels": cost.kernels,
        "slowest_kernels": [{"name": name, "seconds": took} for name, took in cost.slowest],
        "allocated_bytes": cost.allocated,
        "reserved_bytes": cost.reserved,
    }


def called(name: str | None, file: str | None, line: int | None) -> str | None:
    """The function as sentences call it; ``None`` where it is not known."""
    return place(name, file, line).replace("`", "") or None
