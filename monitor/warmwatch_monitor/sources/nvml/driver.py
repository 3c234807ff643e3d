"""The only caller of NVML: every call goes through :func:`query`, and nothing else imports pynvml.

A value that a device does not support is ``None``, for that call alone. A failure of the whole
library is a :class:`DriverError`, a failure of one device a :class:`GpuLostError`. The caller
starts again, or goes on without that device. A call may hang, so the source has a thread of
its own, and ``Feed`` (``sources/listed.py``) reports a read without an answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from typing import Any

import pynvml

from warmwatch_monitor.base.errors import SourceError
from warmwatch_monitor.sources.nvml import MISSING

# 32 and 64 bits of ones: NVML's "not available" for numbers
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
    """NVML cannot be used now; the message is one sentence."""


class GpuLostError(Exception):
    """One device cannot be read until the driver has recovered it."""


def query(function: str, *args: Any, silent: Any = None) -> Any:
    """The result of the NVML ``function`` (its pynvml name); ``None`` if it is not supported.

    ``silent`` replaces the result of a function that returns nothing.

    Raises:
        DriverError: the whole library failed. GpuLostError: this device failed.
    """
    call = getattr(pynvml, function, None)
    if call is None:
        return None  # this pynvml does not have the function
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
    """A number from a structure; ``None`` if it is NVML's sentinel."""
    return None if number in _SENTINELS else number


def start() -> None:
    """Load and initialize the library.

    Raises:
        DriverError: that failed.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        why = _WHOLE.get(error.value, f"NVML cannot be initialized: {error}")
        raise DriverError(why) from None


def stop() -> None:
    """Shut the library down, in any state: the driver may be gone already."""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def address(handle: Any) -> int | None:
    """A handle as a number, to compare devices."""
    return ctypes.cast(handle, ctypes.c_void_p).value


MEMORY_V2 = getattr(pynvml, "nvmlMemory_v2", None)
UTILIZATION_SAMPLES = pynvml.NVML_GPU_UTILIZATION_SAMPLES
UNSIGNED_INT = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
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
# Why clocks are reduced; an idle GPU's low clocks are no fault.
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
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
)


class GpmRequest:
    """The request for GPM_METRICS between two samples; made once, because it is large."""

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

    def query(self, first: Any, second: Any) -> list[float | None]:
        """Values between two samples, in the order of GPM_METRICS; ``None`` where unknown."""
        self._request.sample1, self._request.sample2 = first, second
        if query("nvmlGpmMetricsGet", self._request) is None:
            return [None] * len(GPM_METRICS)
        generator = (_METRIC.unpack_from(self._request, place) for place in self._places)
        return [value if code == 0 and value >= 0 else None for _, code, value in generator]


_METRIC = struct.Struct("@IId")  # the head of c_nvmlGpmMetric_t: id, return code, value
