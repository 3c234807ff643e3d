"""The only caller of NVML: every call passes :func:`ask`, and nothing else imports pynvml.

What a device does not support is ``None``, for that call alone. What is wrong with the library as a
whole is a :class:`DriverError`, what is wrong with one device a :class:`GpuLostError`: the caller
begins anew, or goes on without that device. A call that hangs hangs: its thread is its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from typing import Any

import pynvml

from warmwatch_monitor.errors import SourceError
from warmwatch_monitor.sources.nvml_library import MISSING

# 32 and 64 bits of ones: NVML's way to say "not available" in a number
_SENTINELS = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)

_WHOLE = {
    pynvml.NVML_ERROR_UNINITIALIZED: "NVML was shut down",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: MISSING,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver was upgraded while this library was loaded; restart warmwatch serve"
    ),
}
_LOST = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "the driver has lost it",
    pynvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset",
}


class DriverError(SourceError):
    """NVML as a whole cannot be used now; the message is one sentence."""


class GpuLostError(Exception):
    """One device cannot be read until the driver has it back."""


def ask(function: str, *args: Any, silent: Any = None) -> Any:
    """What the NVML ``function`` (its pynvml name) answers; ``None`` where it is not supported.

    ``silent`` is what to make of success where the function answers nothing.

    Raises:
        DriverError: the library as a whole. GpuLostError: this device.
    """
    call = getattr(pynvml, function, None)
    if call is None:
        return None  # a pynvml older than the function
    try:
        value = call(*args)
    except pynvml.NVMLError as error:
        code = error.value
        if code in _WHOLE:
            raise DriverError(_WHOLE[code]) from None
        if code in _LOST:
            raise GpuLostError(_LOST[code]) from None
        return None
    if value is None:
        return silent
    return None if value in _SENTINELS else value


def known(number: int) -> int | None:
    """A number out of a structure; ``None`` where NVML says so by a sentinel."""
    return None if number in _SENTINELS else number


def start() -> None:
    """Load and initialize the library.

    Raises:
        DriverError: it cannot be.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        why = _WHOLE.get(error.value, f"NVML cannot be initialized: {error}")
        raise DriverError(why) from None


def stop() -> None:
    """Shut the library down, however it is: the driver may be gone already."""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def address(handle: Any) -> int | None:
    """A handle as a number, to tell devices apart."""
    return ctypes.cast(handle, ctypes.c_void_p).value


MEMORY_V2 = getattr(pynvml, "nvmlMemory_v2", None)
TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
CLOCKS = (
    ("graphics", pynvml.NVML_CLOCK_GRAPHICS),
    ("sm", pynvml.NVML_CLOCK_SM),
    ("memory", pynvml.NVML_CLOCK_MEM),
    ("video", pynvml.NVML_CLOCK_VIDEO),
)
ECC_KINDS = (
    ("corrected", pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    ("uncorrected", pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
)
ECC_VOLATILE = pynvml.NVML_VOLATILE_ECC
XID_EVENT = pynvml.nvmlEventTypeXidCriticalError
# Why clocks are below what they could be; an idle GPU's clocks are low for no fault.
THROTTLE_REASONS = (
    ("sw_power_cap", pynvml.nvmlClocksThrottleReasonSwPowerCap),
    ("hw_slowdown", pynvml.nvmlClocksThrottleReasonHwSlowdown),
    ("sw_thermal_slowdown", pynvml.nvmlClocksThrottleReasonSwThermalSlowdown),
    ("hw_thermal_slowdown", pynvml.nvmlClocksThrottleReasonHwThermalSlowdown),
    ("hw_power_brake_slowdown", pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown),
    ("applications_clocks", pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting),
    ("sync_boost", pynvml.nvmlClocksThrottleReasonSyncBoost),
)
GPM_METRICS = (
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)


class GpmRequest:
    """The structure that asks for GPM_METRICS between two samples; made once, for it is large."""

    def __init__(self) -> None:
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(GPM_METRICS)
        for place, metric in enumerate(GPM_METRICS):
            request.metrics[place].metricId = metric
        self._request = request
        size = ctypes.sizeof(pynvml.c_nvmlGpmMetric_t)
        first = type(request).metrics.offset
        self._places = [first + size * place for place in range(len(GPM_METRICS))]

    def ask(self, first: Any, second: Any) -> list[float | None]:
        """Percents between two samples, in the order of GPM_METRICS; ``None`` where unknown."""
        self._request.sample1, self._request.sample2 = first, second
        if ask("nvmlGpmMetricsGet", self._request) is None:
            return [None] * len(GPM_METRICS)
        found = (_METRIC.unpack_from(self._request, place) for place in self._places)
        return [value if code == 0 and value >= 0 else None for _, code, value in found]


_METRIC = struct.Struct("@IId")  # the head of c_nvmlGpmMetric_t: id, return code, value
