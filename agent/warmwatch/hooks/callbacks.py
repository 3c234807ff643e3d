"""Outermost compile intervals, from Dynamo's own start and end callbacks.

They repeat what the events say, and stand in where a PyTorch has no events.
``torch._dynamo.reset()`` clears them: they are armed again when the next event begins, which comes
before the callbacks run. An exception in one would surface in the training: nothing but telling
happens here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from warmwatch._guard import report

if TYPE_CHECKING:
    from warmwatch._agent import Agent

# CallbackTrigger's names (torch 2.8 and later) -> an event whose phase is known. The others span
# several phases, which only the events can tell apart.
_EVENTS = {
    "TRITON_AUTOTUNING": "autotuning",
    "CUDAGRAPH_RECORDING": "cudagraph",
}
_PREFIX = "callback "


def install(agent: Agent) -> Callable[[], None]:
    import torch
    from torch._dynamo.callback import callback_handler as handler

    begun: list[str] = []

    def start(*args: Any) -> None:
        try:
            begun.append(_event(args))
            agent.begin(begun[-1])
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("hooks.callbacks", error)

    def end(*args: Any) -> None:
        try:
            # the last to end may be another than the first to start: the handler counts them
            agent.end(begun.pop() if begun else _event(args))
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("hooks.callbacks", error)

    pairs = (
        (handler.start_callbacks, torch.compiler.disable(start)),
        (handler.end_callbacks, torch.compiler.disable(end)),
    )

    def arm() -> None:
        for callbacks, ours in pairs:
            if ours not in callbacks:
                callbacks.append(ours)

    def uninstall() -> None:
        agent.rearm = None
        for callbacks, ours in pairs:
            if ours in callbacks:
                callbacks.remove(ours)

    arm()
    agent.rearm = arm
    return uninstall


def _event(args: tuple[Any, ...]) -> str:
    trigger = getattr(getattr(args[0], "callback_trigger", None), "name", "") if args else ""
    return _PREFIX + _EVENTS.get(trigger, "")
