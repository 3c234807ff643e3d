"""Steps, from the public post hook of every ``torch.optim`` optimizer.

The hook runs disabled for Dynamo: in a compiled optimizer it makes the frame around ``step`` run
eagerly, which has nothing to compile anyway; graphs, graph breaks and recompiles stay the same.
"""

from __future__ import annotations

from warmwatch._seams import Installed, Listener, look_up


def install(listener: Listener) -> Installed:
    with look_up():
        from torch.compiler import disable
        from torch.optim.optimizer import register_optimizer_step_post_hook
    handle = register_optimizer_step_post_hook(disable(listener.on_step))
    return Installed(uninstall=handle.remove)
