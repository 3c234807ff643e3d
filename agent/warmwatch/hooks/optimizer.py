"""Steps, from the public post hook of every ``torch.optim`` optimizer.

The hook is kept out of Dynamo: in a compiled optimizer it makes the frame around ``step`` run
eagerly, which has nothing to compile anyway; graphs, graph breaks and recompiles stay the same.
``torch.compiler.disable`` would do that with a wrapper that costs more at every step than the hook
itself. So the hook's own code is marked as skipped, once, and only what it rarely calls is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warmwatch._seams import Installed, Listener, look_up


def install(listener: Listener) -> Installed:
    with look_up():
        from torch.compiler import disable
        from torch.optim.optimizer import register_optimizer_step_post_hook
    handle = register_optimizer_step_post_hook(_untraced(listener, disable))
    return Installed(uninstall=handle.remove)


def _untraced(listener: Listener, disable: Callable[[Any], Any]) -> Callable[[Any, Any, Any], None]:
    hook: Any = listener.on_step
    try:
        from torch._dynamo.eval_frame import skip_code
    except ImportError:
        return disable(hook)  # type: ignore[no-any-return]
    listener.wrap_rare(disable)
    skip_code(hook.__code__)
    hook._torchdynamo_disable = True  # a frame that is traced stops at the call, as at any other
    hook._torchdynamo_disable_msg = None
    return hook  # type: ignore[no-any-return]
