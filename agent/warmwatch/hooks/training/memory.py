"""GPU memory as CUDA's caching allocator reports it: allocated, reserved, and its retries.

Read rarely, from statistics that the allocator has anyway: nothing synchronizes, no peak is reset
(peaks count since the user's own last reset), and CUDA is never initialized. An allocator
other than PyTorch's may have no statistics; it is then not read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmwatch._guard import pass_on
from warmwatch.hooks.points import Installed, Listener, look_up


def install(listener: Listener) -> Installed:  # noqa: ARG001 - the signature of every install
    with look_up():
        from torch import _C, cuda

        _ = (cuda.is_initialized, cuda.memory.memory_stats_as_nested_dict)
    readable = True

    def read() -> tuple[int, ...]:
        nonlocal readable
        if not readable or not cuda.is_initialized():
            return ()
        try:
            return total(
                cuda.memory.memory_stats_as_nested_dict(device) for device in _in_use(_C, cuda)
            )
        except (RuntimeError, LookupError, TypeError) as error:
            pass_on(error)
            readable = False
            return ()

    return Installed(memory=read)


def _in_use(core: Any, cuda: Any) -> list[int]:
    """The devices on which this process holds a context: asking about others would create one."""
    has_context = getattr(core, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return [cuda.current_device()]
    return [device for device in range(core._cuda_getDeviceCount()) if has_context(device)]


def total(devices: Any) -> tuple[int, ...]:
    """Bytes over all devices, in the order of ``record.MEMORY``, then the retries; or empty."""
    sums: list[int] = []
    for stats in devices:
        allocated, reserved = (_all(stats, kind) for kind in ("allocated_bytes", "reserved_bytes"))
        values = (
            allocated["current"],
            reserved["current"],
            allocated["peak"],
            reserved["peak"],
            stats.get("num_alloc_retries", 0),
        )
        sums = [int(a + b) for a, b in zip(values, sums or (0,) * len(values), strict=True)]
    return tuple(sums)


def _all(stats: Mapping[str, Any], kind: str) -> Mapping[str, int]:
    """Small and large pools together."""
    counts: Mapping[str, int] = stats[kind]["all"]
    return counts
