"""The ``gpus`` of the ``/status`` answer: each reading as JSON, unknown things ``null``."""

from __future__ import annotations

from typing import Any

from warmwatch_monitor.model import GpuReading

_AS_THEY_ARE = (
    "uuid",
    "index",
    "name",
    "driver",
    "pci_bus_id",
    "parent",
    "profile",
    "trouble",
    "utilization_ratio",
    "memory_utilization_ratio",
    "sm_active_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_watts",
    "power_limit_watts",
    "idle_watts",
    "temperature_celsius",
    "energy_joules",
    "xid_errors",
    "last_xid",
)


def gpu(reading: GpuReading, now_ns: int) -> dict[str, Any]:
    """One GPU; ``age`` is how many seconds ago it was read."""
    return {
        **{name: getattr(reading, name) for name in _AS_THEY_ARE},
        "clocks_hertz": dict(reading.clocks_hertz) or None,
        "throttled": _throttled(reading),
        "ecc_errors": dict(reading.ecc_errors) or None,
        "age": max(0.0, (now_ns - reading.at_ns) / 1e9),
    }


def _throttled(reading: GpuReading) -> list[str] | None:
    """The reasons that hold now: none of them is ``[]``, not to know them is ``None``."""
    if not reading.throttled:
        return None
    return [reason for reason, holds in reading.throttled if holds]
