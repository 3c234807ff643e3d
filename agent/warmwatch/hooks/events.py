"""Begin and end of every compile event, from the logger through which ``dynamo_timed`` speaks.

PyTorch calls ``ChromiumEventLogger.log_event_start`` and ``log_event_end`` for each, also for what
is tuned or recorded at run time (torch 2.6 and later). The methods are wrapped on the class. Their
signatures grew over the versions, so they are passed on as they come. Somebody else who wraps them
too, and then puts back what was there before us, takes ours away with theirs: each of the two puts
the other back.
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

    def begin(event: str) -> None:
        ends.put_back()
        agent.begin(event)

    def end(event: str) -> None:
        starts.put_back()
        agent.end(event)

    starts = _Wrap(torch, ChromiumEventLogger, "log_event_start", begin)
    ends = _Wrap(torch, ChromiumEventLogger, "log_event_end", end)

    def uninstall() -> None:
        starts.remove()
        ends.remove()

    return uninstall


class _Wrap:
    """One method of ``owner``, wrapped so that ``tell`` hears each event's name first."""

    def __init__(self, torch: Any, owner: Any, method: str, tell: Callable[[str], None]) -> None:
        self._owner, self._method = owner, method
        self._original = original = getattr(owner, method)
        self._listening = True

        @functools.wraps(original)
        def wrapper(logger: Any, *args: Any, **kwargs: Any) -> Any:
            if self._listening:
                try:
                    tell(args[0] if args else kwargs[_NAME])
                except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                    report("hooks.events", error)
            return original(logger, *args, **kwargs)

        self._ours = torch.compiler.disable(wrapper)
        setattr(owner, method, self._ours)

    def put_back(self) -> None:
        """Wrap again where what we wrapped stands there bare."""
        if self._listening and self._owner.__dict__.get(self._method) is self._original:
            setattr(self._owner, self._method, self._ours)

    def remove(self) -> None:
        """Put back what was there, unless somebody else has wrapped ours meanwhile."""
        self._listening = False
        if self._owner.__dict__.get(self._method) is self._ours:
            setattr(self._owner, self._method, self._original)
