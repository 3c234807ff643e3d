"""Checks that NVIDIA's library is installed before its bindings are imported.

Without the library, the bindings would take a tenth of the run time of ``warmwatch status``, and
3 MB of the daemon. A later installation is found later.
"""

from __future__ import annotations

import ctypes

from warmwatch_monitor.errors import SourceError

NVML = "libnvidia-ml.so.1"
MISSING = f"no NVIDIA driver here ({NVML} is not found)"


def require_nvml() -> None:
    """Raises SourceError if the library is not found."""
    try:
        ctypes.CDLL(NVML)
    except OSError:
        raise SourceError(MISSING) from None
