"""All reasons of a recompile: one for each compiled entry of the frame that did not fit.

The metrics keep the newest entry's only. After an evaluation that is ``grad_mode`` for whatever
comes next, although it is the training's own entry whose guard tells the cause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from warmwatch._guard import report
from warmwatch.hooks.reasons import telling_first

if TYPE_CHECKING:
    from warmwatch._agent import Agent

# Its name in torch 2.7 and later, and the one in 2.6: the same call, the same list of reasons.
_FUNCTIONS = (
    "get_and_maybe_log_recompilation_reasons",
    "get_and_maybe_log_recompilation_reason",
)


class Reasons:
    """The reasons of the recompile that a thread has begun, until its metrics come."""

    def __init__(self) -> None:
        self._of_thread: dict[int, str] = {}

    def put(self, reasons: list[str]) -> None:
        self._of_thread[threading.get_ident()] = telling_first(reasons)

    def take(self) -> str | None:
        return self._of_thread.pop(threading.get_ident(), None) or None


def install(agent: Agent) -> Callable[[], None]:
    import torch
    from torch._dynamo import convert_frame

    name = next((name for name in _FUNCTIONS if hasattr(convert_frame, name)), _FUNCTIONS[0])
    original = getattr(convert_frame, name)
    kept = Reasons()
    listening = True

    def reasons_of(*args: Any, **kwargs: Any) -> Any:
        reasons = original(*args, **kwargs)
        if listening:
            try:
                kept.put(reasons)
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.recompile_reasons", error)
        return reasons

    ours = torch.compiler.disable(reasons_of)
    setattr(convert_frame, name, ours)
    agent.take_reasons = kept.take

    def uninstall() -> None:
        nonlocal listening
        listening = False
        if getattr(convert_frame, name) is ours:
            setattr(convert_frame, name, original)

    return uninstall
