"""When this process's collectives give up: the timeouts of the process groups that there are.

Asked of PyTorch where it has initialized a group by itself; nothing is started, and no backend is
made that is not there. A collective that waits keeps the timeout that it began with.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from warmwatch._family import own_group

BACKENDS = ("nccl", "gloo", "mpi", "ucc", "xccl", "hccl")
OTHER = "other"
_MOST_GROUPS = 64  # the default one is the first; thousands would cost too much to ask
_LONGEST = 1e9  # seconds: beyond it, never


def shortest_timeout() -> tuple[float, str] | None:
    """The shortest of its groups' in seconds, and of which backend; ``None`` where none is told."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or not own_group():
        return None
    found: list[tuple[float, str]] = []
    with contextlib.suppress(AttributeError, RuntimeError, TypeError):  # another PyTorch's
        for group in tuple(module._world.pg_map)[:_MOST_GROUPS]:
            found.extend(_of(group))
    return min(found, default=None)


def _of(group: Any) -> list[tuple[float, str]]:
    """One for each kind of device; a backend that keeps no timeout tells none."""
    found = []
    for device in group._device_types:
        with contextlib.suppress(AttributeError, RuntimeError, TypeError, ValueError):
            backend = group._get_backend(device)
            seconds, name = backend.options._timeout.total_seconds(), str(backend.name()).lower()
            if 0 < seconds < _LONGEST:
                found.append((float(seconds), name if name in BACKENDS else OTHER))
    return found
