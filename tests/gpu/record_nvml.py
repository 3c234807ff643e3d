"""``python -m gpu.record_nvml FILE`` in tests/: record a real NVML for the stand-in to replay.

Every value that the GPU source reads, raw, or the code of the error; uuids, bus ids and pids are
made up. The GPU is busy with a matrix product meanwhile, so that the figures are those of work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from gpu.beside_smi import BUSY

Value = Any
CLOCKS = range(4)
GPM = (2, 5, 10)  # SM, any tensor, DRAM bandwidth


def main(path: str) -> None:
    """Record all boards."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        assert busy.stdout
        busy.stdout.readline()
        time.sleep(3)
        try:
            capture = recorded()
        finally:
            busy.kill()
    Path(path).write_text(json.dumps(capture, indent=1) + "\n")


def recorded() -> dict[str, Value]:
    """The driver's version and each board's values."""
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    driver = pynvml.nvmlSystemGetDriverVersion()
    return {
        "driver": driver,
        "devices": [{**_made_up(i), **_board(handle)} for i, handle in enumerate(handles)],
    }


def _made_up(index: int) -> dict[str, str]:
    return {
        "uuid": f"GPU-00000000-0000-4000-8000-{index:012x}",
        "pci": f"00000000:{index + 0x1B:02X}:00.0",
    }


def _board(handle: Value) -> dict[str, Value]:
    fields: dict[str, Callable[[], Value]] = {
        "name": lambda: pynvml.nvmlDeviceGetName(handle),
        "util": lambda: _pair(pynvml.nvmlDeviceGetUtilizationRates(handle), "gpu", "memory"),
        "memory": lambda: _pair(
            pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2), "total", "used"
        ),
        "power": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "power_limit": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        "energy": lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "temperature": lambda: pynvml.nvmlDeviceGetTemperature(handle, 0),
        "clocks": lambda: [pynvml.nvmlDeviceGetClockInfo(handle, domain) for domain in CLOCKS],
        "throttle": lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "ecc": lambda: [pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, 0) for kind in (0, 1)],
        "gpm": lambda: _gpm(handle),
        "processes": lambda: [
            4200 + i for i, _ in enumerate(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        ],
        "xids": lambda: _xids(handle),
    }
    return {name: _or_error(read) for name, read in fields.items()}


def _or_error(read: Callable[[], Value]) -> Value:
    try:
        return read()
    except pynvml.NVMLError as error:
        return {"error": error.value}


def _pair(structure: Value, *names: str) -> list[int]:
    return [int(getattr(structure, name)) for name in names]


def _xids(handle: Value) -> Value:
    """None yet, where the driver tells of them."""
    kinds = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
    return 0 if kinds & pynvml.nvmlEventTypeXidCriticalError else {"error": 3}


def _gpm(handle: Value) -> Value:
    if not pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
        return {"error": 3}
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, first)
    time.sleep(1)
    pynvml.nvmlGpmSampleGet(handle, second)
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
    request.sample1, request.sample2 = first, second
    for place, metric in enumerate(GPM):
        request.metrics[place].metricId = metric
    answer = pynvml.nvmlGpmMetricsGet(request)
    return [round(answer.metrics[place].value, 3) for place in range(len(GPM))]


if __name__ == "__main__":
    main(sys.argv[1])
