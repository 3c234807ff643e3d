"""Begin and end of every compile event, from the logger that ``dynamo_timed`` uses.

PyTorch calls ``ChromiumEventLogger.log_event_start`` and ``log_event_end`` for each event, also for
autotuning and recording at run time (torch 2.6 and later). The methods are wrapped on the class.
Their signatures grew over the versions, so arguments are passed through. Another tool may wrap them
too and later restore what it found, which removes our wrapper. Ends without a begin show that, and
the begin is wrapped again. If our first wrapper is still there, below one of another tool, two of
ours surround the method: only the outer one reports.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

from warmwatch._guard import quietly, report
from warmwatch.hooks.dynamo.compilations import EVENT, being_compiled
from warmwatch.hooks.points import Installed, Listener, look_up

_NAME = "event_name"
_CODE = "hooks.code"


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo.utils import ChromiumEventLogger
        from torch.compiler import disable

        starts = _Wrap(disable, ChromiumEventLogger, "log_event_start")
        ends = _Wrap(disable, ChromiumEventLogger, "log_event_end")

    def begin(event: str) -> None:
        listener.begin(event, quietly(_CODE, being_compiled) if event == EVENT else None)

    def end(event: str) -> None:
        if ends.heard > starts.heard:
            ends.heard = starts.heard = 0
            starts.renew()
        listener.end(event)

    with contextlib.ExitStack() as undo:
        undo.callback(starts.remove)
        starts.put(begin)
        undo.callback(ends.remove)
        ends.put(end)
        return Installed(uninstall=undo.pop_all().close)


class _Wrap:
    """Wraps one method of ``owner`` so that ``tell`` is called with each event's name first.

    ``heard`` counts the events.
    """

    def __init__(self, disable: Callable[[Any], Any], owner: Any, method: str) -> None:
        self._disable, self._owner, self._method = disable, owner, method
        self._original = self._ours = getattr(owner, method)
        self._listening = False
        self._thread = threading.local()  # ``active``: a wrapper is active in this call
        self.heard = 0

    def put(self, tell: Callable[[str], None]) -> None:
        """Wrap the method."""
        self._tell, self._listening = tell, True
        self._wrap()

    def renew(self) -> None:
        """Wrap the present method, unless it is ours. Uses a new wrapper: it may contain the old
        one."""
        if self._listening and getattr(self._owner, self._method) is not self._ours:
            self._wrap()

    def remove(self) -> None:
        """Restore the original, unless another tool has wrapped ours meanwhile."""
        self._listening = False
        if self._owner.__dict__.get(self._method) is self._ours:
            setattr(self._owner, self._method, self._original)

    def _wrap(self) -> None:
        original = getattr(self._owner, self._method)

        @functools.wraps(original)
        def wrapper(logger: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._listening or getattr(self._thread, "active", False):
                return original(logger, *args, **kwargs)
            try:
                self.heard += 1
                self._tell(args[0] if args else kwargs[_NAME])
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.events", error)
            self._thread.active = True
            try:
                return original(logger, *args, **kwargs)
            finally:
                self._thread.active = False

        self._original = original
        self._ours = self._disable(wrapper)
        setattr(self._owner, self._method, self._ours)
