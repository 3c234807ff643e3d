"""One NVML device, a board or a MIG device: identity, readings, and activity from GPM samples.

The only caller of NVML: every call goes through :func:`query`, and nothing else imports pynvml.

A value that a device does not support is ``None``, for that call alone. A failure of the whole
library is a :class:`DriverError`, a failure of one device a :class:`GpuLostError`. The caller
starts again, or goes on without that device. A call may hang, so the source has a thread of
its own, and ``Feed`` (``sources/listed.py``) reports a read without an answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pynvml
from msgspec import Struct
from msgspec.structs import asdict, replace

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import SourceError
from warmwatch_monitor.figures.machine import GpuIdentity
from warmwatch_monitor.model.machine import GpuReading
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


# Reading the energy takes 3 ms of CPU on an H100, as much as everything else.
_ENERGY_NS = 900 * 10**6  # "once a second", for polls that are a little early
_STEADY_ENERGY_NS = 5 * 10**9
_RARELY_NS = 10 * 10**9
_SHARED_NS = 2 * 10**9  # reading the processes' utilization takes 3 ms
_KEPT_US = 60 * 10**6  # NVML keeps the utilization of the last 14 s on an H200, five times a second
_MIB = 1 << 20


class _Rare(Struct, frozen=True, kw_only=True):
    """Values that are read every ten seconds."""

    power_limit_watts: float | None
    ecc_errors: tuple[tuple[str, int], ...]


class Memory:
    """The state of a device that outlives its handle.

    ``xid_errors`` is ``None`` until the driver has accepted the registration for them.
    """

    __slots__ = ("idle_watts", "last_xid", "xid_errors")

    def __init__(self) -> None:
        self.xid_errors: int | None = None
        self.last_xid: int | None = None
        self.idle_watts: float | None = None


def spelled(uuid: str) -> str:
    """A uuid in its common form: NVML's prefix, the rest in lower case."""
    for prefix in ("MIG-GPU-", "MIG-", "GPU-"):
        if uuid.upper().startswith(prefix):
            return prefix + uuid[len(prefix) :].lower()
    return uuid.lower()


class Device:
    """A handle with its earlier readings. ``gpm`` is ``None`` if the device has none."""

    def __init__(self, handle: Any, described: GpuIdentity, clock: Clock, gpm: Gpm | None) -> None:
        self.handle, self.described = handle, described
        self.memory = Memory()
        self._clock, self._gpm = clock, gpm
        self._energy: tuple[int, float | None] | None = None
        self._rare: tuple[int, _Rare] | None = None
        self._ratios: tuple[int, tuple[tuple[int, float], ...]] = (0, ())
        self._has_read = False

    def read(self, *, steady: bool = False) -> GpuReading:
        """Read it now. ``steady``: nothing compiles, so that energy need not be read each second.

        Raises:
            DriverError, GpuLostError: see :func:`driver.query`.
        """
        handle, now_ns = self.handle, self._clock.monotonic_ns()
        use = query("nvmlDeviceGetUtilizationRates", handle)
        busy = None if use is None else known(use.gpu)
        power = _scaled(query("nvmlDeviceGetPowerUsage", handle), 1e-3)
        memory = self.memory
        if busy == 0 and power is not None:
            memory.idle_watts = min(power, memory.idle_watts or power)
        used, total = _memory(handle)
        activity = self._gpm.read(now_ns) if self._gpm else ActiveRatios()
        energy_ns, joules = self._read_energy(now_ns, _STEADY_ENERGY_NS if steady else _ENERGY_NS)
        rare = self._read_rarely(now_ns)
        processes = _processes(handle)
        kept = () if self._has_read else self._kept_utilization()
        self._has_read = True
        return GpuReading(
            **self.known(),
            at_ns=now_ns,
            utilization_ratio=_scaled(busy, 0.01),
            kept_utilization=kept,
            memory_utilization_ratio=None if use is None else _scaled(known(use.memory), 0.01),
            sm_active_ratio=activity.sm,
            tensor_active_ratio=activity.tensor,
            dram_active_ratio=activity.dram,
            nvlink_bytes=activity.nvlink_bytes,
            memory_used_bytes=used,
            memory_total_bytes=total,
            power_watts=power,
            power_limit_watts=rare.power_limit_watts,
            temperature_celsius=query("nvmlDeviceGetTemperature", handle, TEMPERATURE_GPU),
            energy_joules=joules,
            read_energy_ns=None if joules is None else energy_ns,
            clocks_hertz=tuple(_clocks(handle)),
            throttled=_throttled(handle),
            ecc_errors=rare.ecc_errors,
            idle_watts=memory.idle_watts,
            processes=processes,
            process_ratios=self._read_ratios(now_ns) if processes and processes[1:] else (),
        )

    def lost(self, trouble: str) -> GpuReading:
        """The reading of a device that cannot be read."""
        return GpuReading(**self.known(), at_ns=self._clock.monotonic_ns(), trouble=trouble)

    def known(self) -> dict[str, Any]:
        """What is known of it without a driver call."""
        return {
            **asdict(self.described),
            "xid_errors": self.memory.xid_errors,
            "last_xid": self.memory.last_xid,
        }

    def close(self) -> None:
        """Free what NVML allocated for it."""
        if self._gpm is not None:
            self._gpm.close()

    def _read_energy(self, now_ns: int, pause_ns: int) -> tuple[int, float | None]:
        if self._energy is None or now_ns - self._energy[0] >= pause_ns:
            began_ns = self._clock.monotonic_ns()
            joules = _scaled(query("nvmlDeviceGetTotalEnergyConsumption", self.handle), 1e-3)
            self._energy = (began_ns + self._clock.monotonic_ns()) // 2, joules
        return self._energy

    def _kept_utilization(self) -> tuple[tuple[int, float], ...]:
        """What NVML kept of the time before the first reading, by the wall clock."""
        result = query("nvmlDeviceGetSamples", self.handle, UTILIZATION_SAMPLES, 0)
        if result is None or result[0] != UNSIGNED_INT:
            return ()
        epoch_us, now_ns = round(self._clock.epoch() * 1e6), self._clock.monotonic_ns()
        samples = [(epoch_us - one.timeStamp, one.sampleValue.uiVal) for one in result[1]]
        return tuple(
            (now_ns - 1000 * age_us, percent / 100)
            for age_us, percent in samples
            if 0 <= age_us < _KEPT_US and percent <= 100
        )

    def _read_ratios(self, now_ns: int) -> tuple[tuple[int, float], ...]:
        """Utilization by process, of the samples since the last reading."""
        if now_ns - self._ratios[0] >= _SHARED_NS:
            since_us = max(0, round(self._clock.epoch() * 1e6) - _SHARED_NS // 1000)
            samples = query("nvmlDeviceGetProcessUtilization", self.handle, since_us) or ()
            groups: dict[int, list[int]] = {}
            for sample in samples:
                if (used := known(sample.smUtil)) is not None and sample.pid:
                    groups.setdefault(sample.pid, []).append(used)
            ratios = sorted((pid, sum(ones) / len(ones) / 100) for pid, ones in groups.items())
            self._ratios = now_ns, tuple(ratios)
        return self._ratios[1]

    def _read_rarely(self, now_ns: int) -> _Rare:
        if self._rare is None or now_ns - self._rare[0] >= _RARELY_NS:
            limit = _scaled(query("nvmlDeviceGetEnforcedPowerLimit", self.handle), 1e-3)
            errors = tuple(_ecc_errors(self.handle))
            self._rare = now_ns, _Rare(power_limit_watts=limit, ecc_errors=errors)
        return self._rare[1]


def _scaled(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor


def _memory(handle: Any) -> tuple[int | None, int | None]:
    """Used and total. The second version excludes the driver's own share, as nvidia-smi does."""
    result = None
    if MEMORY_V2 is not None:
        result = query("nvmlDeviceGetMemoryInfo", handle, MEMORY_V2)
    if result is None:
        result = query("nvmlDeviceGetMemoryInfo", handle)
    return (None, None) if result is None else (known(result.used), known(result.total))


def _clocks(handle: Any) -> Iterator[tuple[str, float]]:
    for domain, code in CLOCKS:
        megahertz = query("nvmlDeviceGetClockInfo", handle, code)
        if megahertz is not None:
            yield domain, megahertz * 1e6


def _throttled(handle: Any) -> tuple[tuple[str, bool], ...]:
    bits = query("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    if bits is None:
        return ()
    return tuple((reason, bool(bits & bit)) for reason, bit in THROTTLE_REASONS)


def _ecc_errors(handle: Any) -> Iterator[tuple[str, int]]:
    for kind, code in ECC_KINDS:
        count = query("nvmlDeviceGetTotalEccErrors", handle, code, ECC_VOLATILE)
        if count is not None:
            yield kind, count


def _processes(handle: Any) -> tuple[int, ...] | None:
    value = query("nvmlDeviceGetComputeRunningProcesses", handle)
    return None if value is None else tuple(sorted({item.pid for item in value}))


def board(index: int, clock: Clock, driver_version: str | None) -> Device:
    handle = query("nvmlDeviceGetHandleByIndex", index)
    uuid = None if handle is None else query("nvmlDeviceGetUUID", handle)
    if uuid is None:
        raise GpuLostError("NVML does not give it a handle")
    pci = query("nvmlDeviceGetPciInfo", handle)
    described = GpuIdentity(
        uuid=spelled(_text(uuid)),
        index=index,
        name=_text(query("nvmlDeviceGetName", handle)) or None,
        driver=driver_version,
        pci_bus_id=None if pci is None else _text(pci.busId).lower() or None,
    )
    take = partial(query, "nvmlGpmSampleGet", handle)
    return Device(handle, described, clock, _gpm(handle, take))


def mig_handles(parent: Device) -> Iterator[tuple[str, Any]]:
    """Uuid and handle of each MIG device of a board; none if it has no MIG devices."""
    mode = query("nvmlDeviceGetMigMode", parent.handle)
    if mode is None or not mode[0]:
        return
    for place in range(query("nvmlDeviceGetMaxMigDeviceCount", parent.handle) or 0):
        handle = query("nvmlDeviceGetMigDeviceHandleByIndex", parent.handle, place)
        uuid = None if handle is None else query("nvmlDeviceGetUUID", handle)
        if uuid is not None:
            yield spelled(_text(uuid)), handle


def mig_devices(parent: Device, clock: Clock) -> Iterator[Device]:
    """The MIG devices of a board, each with a share of its memory and of its processors."""
    for uuid, handle in mig_handles(parent):
        name = _text(query("nvmlDeviceGetName", handle))
        described = replace(
            parent.described,
            uuid=uuid,
            parent=parent.described.uuid,
            profile=name.partition(" MIG ")[2] or None,
        )
        instance = query("nvmlDeviceGetGpuInstanceId", handle)
        take = partial(query, "nvmlGpmMigSampleGet", parent.handle, instance)
        gpm = None if instance is None else _gpm(parent.handle, take)
        yield Device(handle, described, clock, gpm)


def _gpm(handle: Any, take: Any) -> Gpm | None:
    support = query("nvmlGpmQueryDeviceSupport", handle)
    return Gpm(take) if support is not None and support.isSupportedDevice else None


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


_SHORTEST_NS = 100 * 10**6


class ActiveRatios(Struct, frozen=True, kw_only=True):
    """Ratios from 0 to 1, and bytes a second; each ``None`` if unknown."""

    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None
    nvlink_bytes: float | None = None


class Gpm:
    """Samples of one device; ``take`` makes NVML fill a sample, ``None`` if it cannot."""

    def __init__(self, take: Callable[[Any], Any]) -> None:
        self._take = take
        self._samples = [query("nvmlGpmSampleAlloc") for _ in range(2)]
        self._request = GpmRequest()
        self._taken_ns: int | None = None
        self._last = ActiveRatios()

    def read(self, now_ns: int) -> ActiveRatios:
        """The activity since the previous sample."""
        if self._taken_ns is not None and now_ns - self._taken_ns < _SHORTEST_NS:
            return self._last
        before, fresh = self._samples
        if before is None or fresh is None or self._take(fresh) is None:
            self._last, self._taken_ns = ActiveRatios(), None
            return self._last
        if self._taken_ns is not None:
            self._last = self._ratios(before, fresh)
        self._taken_ns = now_ns
        self._samples = [fresh, before]
        return self._last

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples:
            if sample is not None:
                query("nvmlGpmSampleFree", sample)

    def _ratios(self, before: Any, fresh: Any) -> ActiveRatios:
        *percents, mebibytes = self._request.query(before, fresh)
        sm, tensor, dram = (
            None if percent is None else min(1.0, percent / 100) for percent in percents
        )
        nvlink = None if mebibytes is None else mebibytes * _MIB
        return ActiveRatios(sm=sm, tensor=tensor, dram=dram, nvlink_bytes=nvlink)
