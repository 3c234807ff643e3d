"""``%load_ext warmwatch``: attaches in a notebook and shows a status line under a training cell.

A cell without compile activity and steps shows nothing. While a cell runs, a thread reads the
record once a second and updates one display; it does not interrupt the training.
"""

from __future__ import annotations

import contextvars
import threading
from html import escape
from time import monotonic_ns
from typing import Any

from warmwatch._guard import report
from warmwatch.lifecycle import api
from warmwatch.notify.console import why_settled
from warmwatch.shared.phrases import baseline_words, counted, duration, took
from warmwatch.shared.record import PHASES, PROGRESS, Slot

_INTERVAL = 1.0  # seconds between two updates
_LEAST_SHOWN = 0.1  # seconds of compiling
_KEY = "_warmwatch"
# of states, as on the daemon's page
COLOURS = {
    "starting": "#c2c8d1",
    "compiling": "#ff8914",
    "warming": "#f6cf6a",
    "warm": "#009b6d",
    "eager": "#7cc4ee",
    "recompiling": "#d94600",
    "stalled": "#8a3ffc",
}


class LiveAnswer:
    """The display under the running cell.

    Args:
        display: ``IPython.display.display``; returns a handle with ``update(data)``.
        interval: seconds between two updates.
    """

    def __init__(self, display: Any, interval: float = _INTERVAL) -> None:
        self._display, self._interval = display, interval
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._before, self._spent = (0, 0), 0.0
        self._handle: Any = None
        self._shown = ""

    def begin(self, _info: object = None) -> None:
        """Follow a cell that begins."""
        self.end()
        self._over, self._handle, self._shown = threading.Event(), None, ""
        slot = _slot()
        self._before, self._spent = _counts(slot), _spent(slot) if slot else 0.0
        run = contextvars.copy_context().run  # so that the output goes to this cell
        self._thread = threading.Thread(target=run, args=(self._follow,), daemon=True)
        self._thread.start()

    def end(self, _result: object = None) -> None:
        """Update the display a last time when the cell ends."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._over.set()
        thread.join()
        self._update()

    def _follow(self) -> None:
        while not self._over.wait(self._interval):
            self._update()

    def _update(self) -> None:
        try:
            slot = _slot()
            if slot is None or _counts(slot) == self._before:
                return
            state = api.state() or ""
            spent = _spent(slot) - self._spent
            self._show(answer(slot, state, self._before[1], spent), state)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("notebook", error)

    def _show(self, text: str, state: str) -> None:
        if not text or text == self._shown:
            return
        self._shown = text
        data = {"text/plain": f"warmwatch: {text}", "text/html": as_html(text, state)}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def as_html(text: str, state: str) -> str:
    """The line with a bar in the colour of ``state`` to its left, as on the daemon's page."""
    bar = f"border-left: .4em solid {COLOURS.get(state, 'gray')}; padding-left: .6em"
    return f'<div style="{bar}">{escape(text)}</div>'


def load(shell: Any) -> None:
    """Attach, and follow the cells of ``shell``. Does nothing if loaded already."""
    if getattr(shell, _KEY, None) is not None:
        return
    from IPython.display import display

    api.attach()
    live = LiveAnswer(display)
    setattr(shell, _KEY, live)
    shell.events.register("pre_run_cell", live.begin)
    shell.events.register("post_run_cell", live.end)


def unload(shell: Any) -> None:
    """Stop following cells; the agent stays attached."""
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


def _counts(slot: Slot | None) -> tuple[int, int]:
    """Numbers of activities and steps, one of which rises while a cell trains."""
    return (slot.compile.begun, slot.steps.steps) if slot else (0, 0)


def answer(slot: Slot, state: str, steps_before: int = 0, compiled: float = 0.0) -> str:
    """Such as ``compiling for 43 s (inductor): kernels 31 of 86``; empty if nothing was recorded.

    ``steps_before``: steps not to count. ``compiled``: seconds that the cell compiled.
    """
    if slot.compile.active_since_ns:
        return _at_work(slot, "recompiling" if slot.compile.warmups else "compiling")
    # a new record counts all of its steps
    fresh = slot.steps.steps - steps_before * (steps_before <= slot.steps.steps)
    steps = counted(fresh, "step")
    if compiled >= _LEAST_SHOWN:
        steps += f", {duration(compiled)} of compiling"
    length = slot.recent_step_ns or slot.typical_step_ns
    speed = f"{took(length / 1e9)} a step" if length else ""
    if state == "warm":
        if slot.compile.settled == slot.compile.begun + 1 and not slot.steps.steps:
            return f"warm: {why_settled(slot)}"
        since = slot.compile.clean_after + slot.header.warm_steps
        real = f": {speed} {'so far' if slot.unsettled else 'is the real speed'}" if speed else ""
        return f"warm since step {since}{real}; {steps}"
    if state == "eager":
        return f"no compile activity: the model runs eagerly; {steps}" + (speed and f", {speed}")
    baseline = slot.identity.baseline_steps or 0
    if slot.steps.steps < baseline:
        return baseline_words(slot.steps.steps, baseline)
    if not slot.steps.steps:
        return f"no compile event is in progress; {duration(_spent(slot))} of compiling so far"
    clean = max(0, slot.steps.steps - slot.compile.clean_after)
    if clean >= slot.header.warm_steps:  # for example a stalled one
        return f"{state}; {steps}" + (speed and f", {speed}")
    return f"{state}, {clean} of {slot.header.warm_steps} clean steps; {steps}"


def _spent(slot: Slot) -> float:
    return sum(slot.compile.phase_ns) / 1e9


def _at_work(slot: Slot, verb: str) -> str:
    counts = slot.compile
    elapsed = duration(max(0, monotonic_ns() - counts.active_since_ns) / 1e9)
    phase = f" ({PHASES[counts.active_phase - 1]})" if counts.active_phase else ""
    if not counts.progress_of:
        return f"{verb} for {elapsed}{phase}"
    far = f"{PROGRESS[counts.progress_of - 1]} {counts.progress_done} of {counts.progress_total}"
    return f"{verb} for {elapsed}{phase}: {far}"
