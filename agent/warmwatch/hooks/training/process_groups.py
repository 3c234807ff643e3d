"""The begin of ``init_process_group()``: ranks wait there, and in their first collective, for each
other, before they have an optimizer or Dynamo.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import Replaced

MODULE = "torch.distributed.distributed_c10d"
_CALL = "init_process_group"
# where PyTorch has the function, if these were imported before
_MODULES = (MODULE, "torch.distributed", "torch.distributed.device_mesh")


def install(joins: Callable[[], None]) -> Callable[[], None]:
    """Call ``joins`` before and after each initialization; returns what ends that."""
    original: Any = getattr(sys.modules[MODULE], _CALL, None)
    replaced = Replaced()

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        if replaced.listening:
            quietly("hooks.process_groups", joins)
        result = original(*args, **kwargs)
        if replaced.listening:
            quietly("hooks.process_groups", joins)
        return result

    for owner in filter(None, map(sys.modules.get, _MODULES)):
        if original is not None and vars(owner).get(_CALL) is original:
            replaced.put(owner, _CALL, init_process_group)
    return replaced.undo
