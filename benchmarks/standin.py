"""GPUs on a machine without any: the tests' stand-in for NVIDIA's library.

A call takes at least the 8 us of CPU time of a cheap call on an H100, so that the ratio to a
round's own work is realistic. If the real library exists, it is measured instead.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from support.nvml import LIBRARY, Standin, board

CALL_MICROSECONDS = 8


def gpus(count: int, folder: str) -> Standin:
    """A library in ``folder`` that has ``count`` GPUs at work."""
    standin = Standin(Path(folder))
    standin.say(*(board(number, delay=str(CALL_MICROSECONDS)) for number in range(count)))
    return standin


def is_needed() -> bool:
    """Whether this machine has no NVML of its own."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return True
    return False
