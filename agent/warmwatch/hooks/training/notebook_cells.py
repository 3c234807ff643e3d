"""IPython's cell events: between cells no step is expected.

Looks up the shell when Dynamo is imported. A process without IPython reports nothing. Python's own
prompt (``python -i``) has no such events.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.points import HookPointAbsentError, Installed, Listener, look_up


def install(listener: Listener) -> Installed:
    shell = _shell()
    if shell is None:
        return Installed(uninstall=lambda: None)
    cells = _Cells(listener.cells_left, listener.cell_began)
    reports = {"pre_run_cell": cells.began, "post_run_cell": cells.ended}
    with look_up():
        register, unregister = shell.events.register, shell.events.unregister
    with contextlib.ExitStack() as undo:
        for event, callback in reports.items():
            try:
                register(event, callback)
            except KeyError as error:
                raise HookPointAbsentError(f"IPython's event {event}") from error
            undo.callback(unregister, event, callback)
        uninstall = undo.pop_all().close

    return Installed(uninstall=uninstall)


def _shell() -> Any:
    """The running IPython shell, if any; imports nothing."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get is None else get()


class _Cells:
    """The running cells, which may be nested; the begin of the installing cell was not seen."""

    def __init__(self, left: Callable[[], None], began: Callable[[], None]) -> None:
        self._left, self._began = left, began
        self._running, self._waits = 0, False

    def began(self, _info: object = None) -> None:
        """A cell begins."""
        self._running += 1
        self._end_waiting()

    def ended(self, _result: object = None) -> None:
        """A cell has ended."""
        self._running = max(0, self._running - 1)
        self._end_waiting()
        if not self._running:
            self._waits = True
            _call(self._left)

    def _end_waiting(self) -> None:
        if self._waits:
            self._waits = False
            _call(self._began)


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        report("hooks.cells", error)
