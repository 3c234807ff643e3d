"""The threads of ``top`` that query; they end with the program.

Results are handled on the screen's thread. Only one request is in progress at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from warmwatch_monitor.base.errors import WarmwatchError, described

Answer = Mapping[str, Any]


class Taker(Protocol):
    """The screen: its inputs, and Textual's way to call its thread."""

    def missing(self, answer: Answer) -> int:
        """The number of seconds before ``answer`` that it lacks."""

    def take(self, answer: Answer | None, past: Answer | None, trouble: str) -> None:
        """An answer with the columns of those seconds, or ``None`` and the error."""

    def call_from_thread(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call and wait. Raises RuntimeError if the screen has closed."""


class Polling:
    """Requests answers, and the columns of the seconds before them.

    Args:
        taker: receives the results. ask, past: as in ``Top``.

    Attributes:
        in_progress: whether a request is under way. paused: no requests.
    """

    def __init__(
        self, taker: Taker, ask: Callable[[], Answer], past: Callable[[int], Answer | None]
    ) -> None:
        self._taker, self._ask, self._past = taker, ask, past
        self.in_progress = False
        self.paused = False

    def poll(self) -> None:
        """Request an answer, unless a request is in progress."""
        if not self.in_progress and not self.paused:
            self.in_progress = True
            threading.Thread(target=self._poll, name="ask", daemon=True).start()

    def _poll(self) -> None:
        past = None
        try:
            answer, trouble = self._ask(), ""
            with suppress(WarmwatchError):  # the plots stay as they are
                past = self._past(self._taker.missing(answer))
        except WarmwatchError as error:
            answer, trouble = None, str(error)
        except Exception as error:  # noqa: BLE001 - show it: a dead thread would go unnoticed
            answer, trouble = None, described(error)
        with suppress(RuntimeError):  # it has ended meanwhile
            self._taker.call_from_thread(self._take, answer, past, trouble)

    def _take(self, answer: Answer | None, past: Answer | None, trouble: str) -> None:
        self.in_progress = False
        self._taker.take(answer, past, trouble)
