"""Steps, from the public post hook of every ``torch.optim`` optimizer.

The hook runs disabled for Dynamo: in a compiled optimizer it makes the frame around ``step`` run
eagerly, which has nothing to compile anyway; graphs, graph breaks and recompiles stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warmwatch._agent import Agent


def install(agent: Agent) -> Callable[[], None]:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    handle = register_optimizer_step_post_hook(torch.compiler.disable(agent.steps.on_step))
    return handle.remove  # type: ignore[no-any-return]
