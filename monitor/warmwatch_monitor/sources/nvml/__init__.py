"""GPUs and MIG devices, read through NVML: driver (the only caller of pynvml), devices, source."""

from __future__ import annotations

import ctypes

from warmwatch_monitor.errors import SourceError

NVML = "libnvidia-ml.so.1"
MISSING = f"no NVIDIA driver here ({NVML} is not found)"


def require_nvml() -> None:
    """Check for NVIDIA's library before its bindings are imported; a later poll finds a new one.

    Without the library, the bindings would take a tenth of the run time of ``warmwatch status``,
    and 3 MB of the daemon.

    Raises:
        SourceError: the library is not found.
    """
    try:
        ctypes.CDLL(NVML)
    except OSError:
        raise SourceError(MISSING) from None
