"""In a notebook: ``%load_ext warmwatch`` attaches, and answers under the cell that trains.
A cell in which nothing compiles and no step is made shows nothing. While a cell runs, a thread of
ours looks once a second and updates one display; the training is not asked for anything.
"""

from __future__ import annotations

import contextvars
import threading
from typing import Any

from warmwatch._guard import report
from warmwatch.lifecycle import api
from warmwatch.notify.live_answer import answer
from warmwatch.shared.record import Slot

_PAUSE = 1.0  # seconds between two looks
_KEY = "_warmwatch"


class LiveAnswer:
    """The display under the cell that runs.

    Args:
        display: IPython's; called with the text, it gives a handle with ``update(text)``.
    """

    def __init__(self, display: Any, pause: float = _PAUSE) -> None:
        self._display, self._pause = display, pause
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._before = (0, 0)
        self._handle: Any = None
        self._shown = ""

    def begin(self, _info: object = None) -> None:
        """A cell begins."""
        self.end()
        self._over, self._handle, self._shown = threading.Event(), None, ""
        self._before = _so_far(_slot())
        run = contextvars.copy_context().run  # so that what is shown is this cell's
        self._thread = threading.Thread(target=run, args=(self._follow,), daemon=True)
        self._thread.start()

    def end(self, _result: object = None) -> None:
        """It has ended: the last word."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._over.set()
        thread.join()
        self._look()

    def _follow(self) -> None:
        while not self._over.wait(self._pause):
            self._look()

    def _look(self) -> None:
        try:
            slot = _slot()
            if slot is None or _so_far(slot) == self._before:
                return
            self._show(answer(slot, api.state() or "", self._before[1]))
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("notebook", error)

    def _show(self, text: str) -> None:
        if not text or text == self._shown:
            return
        self._shown = text
        shown = {"text/plain": f"warmwatch: {text}"}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def load(shell: Any) -> None:
    """Attach, and follow the cells of ``shell``; once."""
    if getattr(shell, _KEY, None) is not None:
        return
    from IPython.display import display

    api.attach()
    live = LiveAnswer(display)
    setattr(shell, _KEY, live)
    shell.events.register("pre_run_cell", live.begin)
    shell.events.register("post_run_cell", live.end)


def unload(shell: Any) -> None:
    """Follow them no longer; the agent stays attached."""
    live = getattr(shell, _KEY, None)
    if live is None:
        return
    setattr(shell, _KEY, None)
    shell.events.unregister("pre_run_cell", live.begin)
    shell.events.unregister("post_run_cell", live.end)
    live.end()


def _slot() -> Slot | None:
    attached = api.attached
    return attached.agent.record.image() if attached is not None and attached.armed else None


def _so_far(slot: Slot | None) -> tuple[int, int]:
    """Activities and steps: what moves while a cell trains."""
    return (slot.compile.begun, slot.steps.steps) if slot else (0, 0)
