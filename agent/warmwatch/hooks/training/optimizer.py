"""Steps, from an empty method that PyTorch's wrapper of every optimizer's ``step`` calls.

``Optimizer._optimizer_step_code`` marks the end of a step for PyTorch's profiler, before the post
hooks. The agent replaces it on the class by a function that calls the original and marks the step.
Dynamo traces the original (``_torchdynamo_inline``), so graphs, frames and graph breaks stay the
same for an optimizer of any class. A hook in PyTorch's own dictionary of hooks could not do that:
Dynamo traces their loop, and would have to trace the hook or break the graph there.

Where Dynamo traces the call, it does not run: ``compiled_steps`` counts such steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, skip_frames, untraced

STEP_CODE = "_optimizer_step_code"


def install(listener: Listener) -> Installed:
    with look_up():
        import torch

        disable, optimizer = torch.compiler.disable, torch.optim.Optimizer
        original = optimizer._optimizer_step_code
    replaced = Replaced()
    marking, silence = _marking(original, listener.on_step)
    # ``torch.compiler.disable`` would add a wrapper that costs more at every step than the rest.
    # So the code of a regular step is marked as skipped, once, and only its rare calls are wrapped.
    listener.wrap_rare(disable)
    skip_frames(listener.on_step)
    replaced.put(optimizer, STEP_CODE, marking)

    def uninstall() -> None:
        silence()
        replaced.undo()

    return Installed(uninstall=uninstall, optimizers=lambda: _any_created(optimizer))


def _marking(
    original: Callable[[Any], None], on_step: Callable[[Any], None]
) -> tuple[Any, Callable[[], None]]:
    """The function to put in place of ``original``, and one that ends its marking of steps."""

    # PyTorch's profiler finds the optimizer as the variable ``self`` of this function's frames, or
    # of the original's, whichever it met first.
    def _optimizer_step_code(self: Any) -> None:
        original(self)
        on_step(self)

    def silence() -> None:
        nonlocal on_step
        on_step = _ignore

    return _optimizer_step_code, silence


def _ignore(optimizer: Any) -> None:
    pass


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


def install_created(listener: Listener) -> Installed:
    """Report each new optimizer, from the method that every constructor and unpickling calls.

    Separates a new training's optimizer from one that alternates with the leader. One that compiled
    code creates is not reported: Dynamo traces the original. The first constructor of a process
    may import Dynamo, which calls this function, after it has called that method.
    """
    with look_up():
        from torch.optim import Optimizer

        original = Optimizer._patch_step_function
    replaced = Replaced()

    def _patch_step_function(self: Any) -> None:
        if replaced.listening:
            untraced("hooks.optimizer", listener.created, self)
        original(self)

    replaced.put(Optimizer, "_patch_step_function", _patch_step_function)
    for optimizer in _under_construction(getattr(Optimizer.__init__, "__code__", None)):
        quietly("hooks.optimizer", listener.created, optimizer)
    return Installed(uninstall=replaced.undo)


def _under_construction(constructor: CodeType | None) -> Iterator[Any]:
    """The optimizers whose constructor the calling thread runs.

    Not known if another tool has replaced the constructor.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is constructor and "self" in frame.f_locals:
            yield frame.f_locals["self"]
        frame = frame.f_back
