"""The begin of ``init_process_group()``: ranks wait there, and in their first collective, for each
other, before they have an optimizer or Dynamo.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from warmwatch.hooks.points import Replaced, untraced

MODULE = "torch.distributed.distributed_c10d"
_CALL = "init_process_group"
# where PyTorch has the function, if these are imported
_MODULES = (MODULE, "torch.distributed", "torch.distributed.device_mesh")


def install(joins: Callable[[], None]) -> Callable[[], None]:
    """Call ``joins`` before and after each initialization; returns what ends that."""
    original: Any = getattr(sys.modules[MODULE], _CALL, None)
    replaced = Replaced()

    @functools.wraps(original, updated=())
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        if replaced.listening:
            untraced("hooks.process_groups", joins)
        result = original(*args, **kwargs)
        if replaced.listening:
            untraced("hooks.process_groups", joins)
        return result

    def owners_of(function: Any) -> list[Any]:
        owners = filter(None, map(sys.modules.get, _MODULES))
        return [owner for owner in owners if function and vars(owner).get(_CALL) is function]

    for owner in owners_of(original):
        replaced.put(owner, _CALL, init_process_group)

    def leave() -> None:
        replaced.undo()
        for owner in owners_of(init_process_group):  # imported since
            setattr(owner, _CALL, original)

    return leave
