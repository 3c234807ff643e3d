"""The threads of ``top`` that query and listen; they end with the program.

Results are handled on the screen's thread. Only one request is in progress at a time; with a daemon
that sends events, requests are rare.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from warmwatch_monitor.base.errors import WarmwatchError, described
from warmwatch_monitor.commands.top.history import Frame, frames
from warmwatch_monitor.commands.top.samples import NOTHING, Update

Answer = Mapping[str, Any]

# with events: longest and shortest time between two requests
_FRESH_SECONDS, _SHORTEST_SECONDS = 5.0, 1.0


class Taker(Protocol):
    """The screen: its inputs, and Textual's two ways to call its thread."""

    def take(self, answer: Answer | None, trouble: str) -> None:
        """An answer, or ``None`` and the error."""

    def take_sample(self, sample: Answer) -> None:
        """Figures between two answers."""

    def take_past(self, past: list[Frame]) -> None:
        """The history before the first answer."""

    def call_from_thread(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call and wait. Raises RuntimeError if the screen has closed."""

    def call_later(self, callback: Callable[..., Any], *args: Any) -> bool:
        """Schedule a call without waiting; returns whether it will run."""


class Polling:
    """Requests answers at an interval, or when events announce a change.

    Args:
        taker: receives the results. ask, seconds, past, receive: as in ``Top``.

    Attributes:
        in_progress: whether a request is under way.
        paused: no requests, and samples are ignored.
    """

    def __init__(
        self,
        taker: Taker,
        ask: Callable[[], Answer],
        seconds: float,
        past: Callable[[], Answer | None],
        receive: Callable[[], Update] | None,
    ) -> None:
        self._taker, self._ask, self._seconds = taker, ask, seconds
        self._past, self._receive = past, receive
        self._has_events, self._is_old, self._requested_at = False, False, 0.0
        self.in_progress = False
        self.paused = False

    def begin(self) -> None:
        """Send the first request, listen, and read the history."""
        self.poll()
        if self._receive is not None:
            threading.Thread(target=self._listen, args=(self._receive,), daemon=True).start()
        threading.Thread(target=self._read_history, name="past", daemon=True).start()

    def poll(self) -> None:
        """Request an answer, unless a request is in progress."""
        if not self.in_progress and not self.paused:
            self.in_progress, self._is_old, self._requested_at = True, False, time.monotonic()
            threading.Thread(target=self._poll, name="ask", daemon=True).start()

    def tick(self) -> None:
        """Request an answer, unless events show that nothing changed."""
        age = time.monotonic() - self._requested_at
        if not self._has_events or self._is_old or age >= max(_FRESH_SECONDS, self._seconds):
            self.poll()

    def _poll(self) -> None:
        try:
            answer, trouble = self._ask(), ""
        except WarmwatchError as error:
            answer, trouble = None, str(error)
        except Exception as error:  # noqa: BLE001 - show it: a dead thread would go unnoticed
            answer, trouble = None, described(error)
        with suppress(RuntimeError):  # it has ended meanwhile
            self._taker.call_from_thread(self._take, answer, trouble)

    def _listen(self, receive: Callable[[], Update]) -> None:
        going_on = True
        with suppress(RuntimeError):  # it has ended meanwhile
            while going_on:
                try:
                    update = receive()
                except Exception as error:  # noqa: BLE001 - shown, and polling continues
                    self._taker.call_later(self._take, None, described(error))
                    update, going_on = NOTHING, False
                going_on = self._taker.call_later(self._take_update, update) and going_on

    def _read_history(self) -> None:
        """Read the history; without one the plots start now."""
        with suppress(WarmwatchError, LookupError, TypeError, ValueError):
            before = self._past()
            if before is not None:
                with suppress(RuntimeError):
                    self._taker.call_from_thread(self._taker.take_past, list(frames(before)))

    def _take(self, answer: Answer | None, trouble: str) -> None:
        self.in_progress = False
        self._taker.take(answer, trouble)

    def _take_update(self, update: Update) -> None:
        self._has_events, self._is_old = update.is_live, self._is_old or update.changed
        if self._is_old and time.monotonic() - self._requested_at >= _SHORTEST_SECONDS:
            self.poll()
        if update.sample is not None and not self.paused:
            self._taker.take_sample(update.sample)
