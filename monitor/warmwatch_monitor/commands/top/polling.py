"""The threads of ``top`` that query; they end with the program.

Results are handled on the screen's thread. Only one request is in progress at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from warmwatch_monitor.base.errors import WarmwatchError, described
from warmwatch_monitor.commands.top.history import Frame, frames

Answer = Mapping[str, Any]


class Taker(Protocol):
    """The screen: its inputs, and Textual's way to call its thread."""

    def take(self, answer: Answer | None, trouble: str) -> None:
        """An answer, or ``None`` and the error."""

    def take_past(self, past: list[Frame]) -> None:
        """The history before the first answer."""

    def call_from_thread(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call and wait. Raises RuntimeError if the screen has closed."""


class Polling:
    """Requests answers, and the history once.

    Args:
        taker: receives the results. ask, past: as in ``Top``.

    Attributes:
        in_progress: whether a request is under way. paused: no requests.
    """

    def __init__(
        self, taker: Taker, ask: Callable[[], Answer], past: Callable[[], Answer | None]
    ) -> None:
        self._taker, self._ask, self._past = taker, ask, past
        self.in_progress = False
        self.paused = False

    def begin(self) -> None:
        """Send the first request, and read the history."""
        self.poll()
        threading.Thread(target=self._read_history, name="past", daemon=True).start()

    def poll(self) -> None:
        """Request an answer, unless a request is in progress."""
        if not self.in_progress and not self.paused:
            self.in_progress = True
            threading.Thread(target=self._poll, name="ask", daemon=True).start()

    def _poll(self) -> None:
        try:
            answer, trouble = self._ask(), ""
        except WarmwatchError as error:
            answer, trouble = None, str(error)
        except Exception as error:  # noqa: BLE001 - show it: a dead thread would go unnoticed
            answer, trouble = None, described(error)
        with suppress(RuntimeError):  # it has ended meanwhile
            self._taker.call_from_thread(self._take, answer, trouble)

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
