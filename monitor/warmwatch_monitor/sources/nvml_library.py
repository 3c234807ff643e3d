"""Whether NVIDIA's library is installed, checked before its bindings are imported.

Where there is none they would be a tenth of the time that ``warmwatch status`` takes, and 3 MB of
the daemon. One that is installed later is found later.
"""

from __future__ import annotations

import ctypes

from warmwatch_monitor.errors import SourceError

NVML = "libnvidia-ml.so.1"
MISSING = f"no NVIDIA driver here ({NVML} is not found)"


def require_nvml() -> None:
    """Raises SourceError where the library is not found."""
    try:
        ctypes.CDLL(NVML)
    except OSError:
        raise SourceError(MISSING) from None
