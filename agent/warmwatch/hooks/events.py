"""Begin and end of every compile event, from the logger through which ``dynamo_timed`` speaks.

PyTorch calls ``ChromiumEventLogger.log_event_start`` and ``log_event_end`` for each, also for what
is tuned or recorded at run time (torch 2.6 and later). The methods are wrapped on the class. Their
signatures grew over the versions, so they are passed on as they come.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from warmwatch._guard import report

if TYPE_CHECKING:
    from warmwatch._agent import Agent

_NAME = "event_name"


def install(agent: Agent) -> Callable[[], None]:
    import torch
    from torch._dynamo.utils import ChromiumEventLogger

    undo = [
        _wrap(torch, ChromiumEventLogger, "log_event_start", agent.begin),
        _wrap(torch, ChromiumEventLogger, "log_event_end", agent.end),
    ]

    def uninstall() -> None:
        for one in undo:
            one()

    return uninstall


def _wrap(torch: Any, owner: Any, method: str, tell: Callable[[str], None]) -> Callable[[], None]:
    original = owner.__dict__[method] if method in owner.__dict__ else getattr(owner, method)
    listening = True

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if listening:
            try:
                tell(args[0] if args else kwargs[_NAME])
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.events", error)
        return original(self, *args, **kwargs)

    ours = torch.compiler.disable(wrapper)
    setattr(owner, method, ours)

    def unwrap() -> None:
        nonlocal listening
        listening = False  # for where somebody else has wrapped ours meanwhile
        if owner.__dict__.get(method) is ours:
            setattr(owner, method, original)

    return unwrap
