"""What can be told of a training from outside, without an agent in it. Pure.

Never certain: nobody outside sees the compiler. These are the signs, as they were measured: while
the training process compiles, its GPU idles and a core of the process is busy, or its compile
workers are; that workers exist says nothing. One look says nothing either: most of the last ones
must say the same, and none the contrary.
"""

from __future__ import annotations

from collections.abc import Sequence

from warmwatch_monitor.model import Signs
from warmwatch_monitor.model.machine import IDLE_RATIO, WORKING_RATIO

LOOKS, AGREEING = 3, 2
CORE_RATIO = 0.8
ABOVE_IDLE = 1.5  # a GPU that works draws well more than it does idle


def likely_compiling(looks: Sequence[Signs]) -> bool | None:
    """Whether it is likely to compile; ``None`` where the last looks do not say, or differ.

    - workers busy, GPU not busy: yes; workers busy beside a busy GPU: nobody can tell.
    - workers there and idle, GPU idle, a core of the process busy: yes, it works in the main
      process; without any workers the same may be data loading.
    - GPU busy, well above its idle power, no worker busy: no.
    """
    opinions = [opinion for opinion in map(_opinion, looks[-LOOKS:]) if opinion is not None]
    return opinions[0] if len(opinions) >= AGREEING and len(set(opinions)) == 1 else None


def _opinion(look: Signs) -> bool | None:
    gpu = look.gpu_ratio
    if look.workers_busy:
        return True if gpu is None or gpu <= WORKING_RATIO else None
    if gpu is None:
        return None
    if gpu < IDLE_RATIO:
        core_busy = look.cpu_ratio is not None and look.cpu_ratio >= CORE_RATIO
        return True if look.workers_idle and core_busy else None
    return False if gpu > WORKING_RATIO and _draws(look) else None


def _draws(look: Signs) -> bool:
    """Whether the power speaks against an idle chip; where it is not known, nothing does."""
    if look.watts is None or look.idle_watts is None:
        return True
    return look.watts > ABOVE_IDLE * look.idle_watts
