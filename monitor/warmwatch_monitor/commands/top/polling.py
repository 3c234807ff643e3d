"""The threads of ``top`` that query; they end with the program.

Results are handled on the screen's thread. Only one request is in progress at a time.

They query answers, and the last hour of the daemon, or of what ``top`` has read itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from warmwatch_monitor.base.errors import WarmwatchError, described
from warmwatch_monitor.client.answers import answer_source
from warmwatch_monitor.last_hour.ring import LastHour, columns

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


POINTS = 900  # the most values of a requested column, as many as the page requests
_MOST_RANKS = 512  # without a daemon: 64 KiB each


class Feed:
    """``options``: as of :func:`answer_source`."""

    def __init__(self, run: str | None, **options: Any) -> None:
        self._own = LastHour(_MOST_RANKS)
        take = self._own.take
        self.answer = answer_source(run, on_read=take, on_query=take, **options)

    def past(self, seconds: int) -> dict[str, Any] | None:
        """The columns of the seconds before the last answer; ``None``: the daemon has none."""
        daemon = self.answer.daemon
        if daemon is None:
            return columns(self._own, seconds, points=POINTS)
        return daemon.history(seconds, POINTS)
