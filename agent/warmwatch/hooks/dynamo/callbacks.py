"""Outermost compile intervals, from Dynamo's own start and end callbacks.

They repeat the events, and replace them in a PyTorch without events. ``torch._dynamo.reset()``
clears them, so the begin of the next event installs them again, before the callbacks run. An
exception in one would reach the training, so they only call the listener.
"""

from __future__ import annotations

import contextlib
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.points import Installed, Listener, look_up

# CallbackTrigger's names (torch 2.8 and later) -> an event with a known phase. The other names span
# several phases, which only the events can separate.
_EVENTS = {
    "TRITON_AUTOTUNING": "autotuning",
    "CUDAGRAPH_RECORDING": "cudagraph",
}
_PREFIX = "callback "


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo.callback import callback_handler as handler
        from torch.compiler import disable

        lists = handler.start_callbacks, handler.end_callbacks
    begun: list[str] = []

    def start(*args: Any) -> None:
        try:
            begun.append(_event(args))
            listener.begin(begun[-1])
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("hooks.callbacks", error)

    def end(*args: Any) -> None:
        try:
            # The last to end may not be the first to start; the handler counts them.
            listener.end(begun.pop() if begun else _event(args))
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("hooks.callbacks", error)

    pairs = tuple(zip(lists, (disable(start), disable(end)), strict=True))

    def arm() -> None:
        for callbacks, ours in pairs:
            if ours not in callbacks:
                callbacks.append(ours)

    def uninstall() -> None:
        for callbacks, ours in pairs:
            if ours in callbacks:
                callbacks.remove(ours)

    with contextlib.ExitStack() as undo:
        undo.callback(uninstall)
        arm()
        undo.pop_all()
    return Installed(uninstall=uninstall, rearm=arm)


def _event(args: tuple[Any, ...]) -> str:
    trigger = getattr(getattr(args[0], "callback_trigger", None), "name", "") if args else ""
    return _PREFIX + _EVENTS.get(trigger, "")
