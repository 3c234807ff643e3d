"""Begin and end of every compile event.

PyTorch calls ``ChromiumEventLogger.log_event_start`` and ``log_event_end`` for each event, also for
autotuning and recording at run time (torch 2.6 and later). The methods are wrapped on the class.
Their signatures grew over the versions, so arguments are passed through. Another tool may wrap them
too and later restore what it found, which removes our wrapper. More ends than begins show that, and
the begin is wrapped again. The earlier wrapper may still be called, inside another tool's: only the
newest one reports.

At run time Dynamo would trace the agent's frames. ``torch.compiler.disable`` costs as much as the
agent itself. So Dynamo skips the wrapper, which turns Dynamo off for the agent's part alone.

Dynamo's own start and end callbacks repeat the outermost events, and replace them in a PyTorch
without events. ``torch._dynamo.reset()`` clears them, so the begin of the next event installs them
again, before the callbacks run. An exception in one would reach the training, so they only call the
listener.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.dynamo.compiled_code import being_compiled
from warmwatch.hooks.points import Installed, Listener, look_up

_NAME = "event_name"  # PyTorch's parameter
_COMPILATION = "dynamo"  # the event of a function that Dynamo compiles
# CallbackTrigger's names (torch 2.8 and later) -> an event with a known phase. The other names span
# several phases, which only the events can separate.
_EVENTS = {
    "TRITON_AUTOTUNING": "autotuning",
    "CUDAGRAPH_RECORDING": "cudagraph",
}
_PREFIX = "callback "


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._C._dynamo.eval_frame import set_eval_frame
        from torch._dynamo.decorators import skip
        from torch._dynamo.utils import ChromiumEventLogger

        starts = _Wrap(skip, set_eval_frame, ChromiumEventLogger, "log_event_start")
        ends = _Wrap(skip, set_eval_frame, ChromiumEventLogger, "log_event_end")

    def begin_compilation(event: str) -> None:
        of = being_compiled()
        user = of.pop("unfused", None)
        listener.begin(event, of)
        if user is not None:
            listener.fallback({"setting": "flex_attention", **user})

    def end(event: str) -> None:
        if ends.count > starts.count:
            ends.count = starts.count = 0
            starts.renew()
        listener.end(event)

    with contextlib.ExitStack() as undo:
        undo.callback(starts.remove)
        starts.put(listener.begin, {_COMPILATION: begin_compilation})
        undo.callback(ends.remove)
        ends.put(end, {})
        return Installed(uninstall=undo.pop_all().close)


class _Wrap:
    """Wraps one method of ``owner`` so that each event first calls a function with its name.

    ``count`` is the number of events.
    """

    def __init__(
        self,
        skip: Callable[[Any], Any],
        set_eval_frame: Callable[[Any], Any],
        owner: Any,
        method: str,
    ) -> None:
        self._skip, self._set_eval_frame = skip, set_eval_frame
        self._owner, self._method = owner, method
        self._original = self._ours = getattr(owner, method)
        self._listening = False
        self.count = 0

    def put(
        self, callback: Callable[[str], None], special: Mapping[str, Callable[[str], None]]
    ) -> None:
        """Wrap the method. ``special``: what to call for some events instead of ``callback``."""
        self._callback, self._special, self._listening = callback, special, True
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
        callback, special = self._callback, self._special
        set_eval_frame = self._set_eval_frame

        @functools.wraps(original, updated=())
        def wrapper(logger: Any, *args: Any, **kwargs: Any) -> Any:
            if self._listening and self._ours is wrapper:
                traces = set_eval_frame(None)
                try:
                    self.count += 1
                    event = args[0] if args else kwargs[_NAME]
                    special.get(event, callback)(event)
                except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                    report("hooks.events", error)
                finally:
                    if traces is not None:
                        set_eval_frame(traces)
            return original(logger, *args, **kwargs)

        self._original, self._ours = original, wrapper
        setattr(self._owner, self._method, self._skip(wrapper))


def install_callbacks(listener: Listener) -> Installed:
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
