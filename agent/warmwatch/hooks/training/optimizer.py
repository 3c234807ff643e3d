"""Steps, from the public post hook of every ``torch.optim`` optimizer.

The hook is skipped by Dynamo: in a compiled optimizer it makes the frame around ``step`` run
eagerly, which has nothing to compile anyway. Graphs, graph breaks and recompiles stay the same.
``torch.compiler.disable`` would add a wrapper that costs more at every step than the hook itself.
So the hook's code is marked as skipped, once, and only its rare calls are wrapped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up


def install(listener: Listener) -> Installed:
    with look_up():
        from torch.compiler import disable
        from torch.optim import Optimizer
        from torch.optim.optimizer import register_optimizer_step_post_hook
    handle = register_optimizer_step_post_hook(_untraced(listener, disable))
    return Installed(uninstall=handle.remove, optimizers=lambda: _any_created(Optimizer))


def _any_created(base: type[Any]) -> bool:
    """Whether an instance of ``base`` or of a subclass was ever created.

    Each constructor marks its class. That finds optimizers older than the hooks, also one whose
    constructor imports Dynamo.
    """
    kinds = [base]
    for kind in kinds:  # which grows
        if getattr(kind.step, "hooked", False):
            return True
        kinds += kind.__subclasses__()
    return False


# If compiled code creates an optimizer, Dynamo inlines the wrapped method. A disabled wrapper, or a
# closure over the agent's objects, would break the graph there.
_on_created: Callable[[Any], None] | None = None
_original: Callable[[Any], None]
_is_compiling: Callable[[], bool]


def install_created(listener: Listener) -> Installed:
    """Report each new optimizer, from the method that every constructor and unpickling calls.

    Separates a new training's optimizer from one that alternates with the leader. One that compiled
    code creates is not reported: Dynamo traces the report away. The first constructor of a process
    may import Dynamo, which calls this function, after it has called that method.
    """
    global _on_created, _original, _is_compiling
    with look_up():
        from torch.compiler import is_compiling
        from torch.optim import Optimizer

        original = Optimizer._patch_step_function
    replaced = Replaced()

    def uninstall() -> None:
        global _on_created
        _on_created = None
        replaced.undo()

    if original is not _patch_step_function:  # else another tool has restored ours
        _original = original
    _is_compiling, _on_created = is_compiling, listener.created
    replaced.put(Optimizer, "_patch_step_function", _patch_step_function)
    for optimizer in _under_construction(getattr(Optimizer.__init__, "__code__", None)):
        quietly("hooks.optimizer", listener.created, optimizer)
    return Installed(uninstall=uninstall)


def _under_construction(constructor: CodeType | None) -> Iterator[Any]:
    """The optimizers whose constructor the calling thread runs.

    Not known if another tool has replaced the constructor.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is constructor and "self" in frame.f_locals:
            yield frame.f_locals["self"]
        frame = frame.f_back


def _patch_step_function(optimizer: Any) -> None:
    if not _is_compiling() and _on_created is not None:
        quietly("hooks.optimizer", _on_created, optimizer)
    _original(optimizer)


def _untraced(listener: Listener, disable: Callable[[Any], Any]) -> Callable[[Any, Any, Any], None]:
    hook: Any = listener.on_step
    try:
        from torch._dynamo.eval_frame import skip_code
    except ImportError:
        return disable(hook)  # type: ignore[no-any-return]
    listener.wrap_rare(disable)
    skip_code(hook.__code__)
    hook._torchdynamo_disable = True  # tracing a caller stops at this call, as at any other hook
    hook._torchdynamo_disable_msg = None
    return hook  # type: ignore[no-any-return]
