"""IPython's cell events: between cells no step is expected.

Looks up the shell when Dynamo is imported. A process without IPython reports nothing. Python's own
prompt (``python -i``) has no such events.
"""

from __future__ import annotations

import contextlib
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import HookPointAbsentError, Installed, Listener, look_up
from warmwatch.shared.loaded import loaded

_PAUSE = {"what": "between_cells"}


def install(listener: Listener) -> Installed:
    running = shell()
    if running is None:
        return Installed(uninstall=lambda: None)
    cells = _Cells(listener)
    reports = {"pre_run_cell": cells.began, "post_run_cell": cells.ended}
    with look_up():
        register, unregister = running.events.register, running.events.unregister
    with contextlib.ExitStack() as undo:
        for event, callback in reports.items():
            try:
                register(event, callback)
            except KeyError as error:
                raise HookPointAbsentError(f"IPython's event {event}") from error
            undo.callback(unregister, event, callback)
        uninstall = undo.pop_all().close

    return Installed(uninstall=uninstall)


def shell() -> Any:
    """The running IPython shell, if any; imports nothing."""
    get = getattr(loaded("IPython"), "get_ipython", None)
    return None if get is None else get()


class _Cells:
    """The running cells, which may be nested; the begin of the installing cell was not seen."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._running, self._waits = 0, False

    def began(self, _info: object = None) -> None:
        self._running += 1
        self._end_waiting()

    def ended(self, _result: object = None) -> None:
        self._running = max(0, self._running - 1)
        self._end_waiting()
        if not self._running:
            self._waits = True
            quietly("hooks.cells", self._listener.post, "pause_began", _PAUSE)

    def _end_waiting(self) -> None:
        if self._waits:
            self._waits = False
            quietly("hooks.cells", self._listener.post, "pause_ended", _PAUSE)
