"""The pause between two queries of ``wait``: until an event, if the daemon sends them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from warmwatch_monitor.client.answers import Asker
from warmwatch_monitor.client.events import Event, EventClient

# kinds that can end or begin a wait; others only change the text
KINDS = ("run", "attached", "gone", "condition")
_USUAL_SECONDS = 0.25
_SHORTEST_SECONDS = 0.2  # between two queries, regardless of events
_RARE_SECONDS = 60.0
_CROWDED_SECONDS = 5.0
_SEEN_SECONDS = 1.0


class PollInterval:
    """Pauses between the queries of ``ask``.

    Args:
        is_seen: a user watches on a terminal, so seconds have to advance.
    """

    def __init__(self, ask: Asker, hearing: EventClient, *, is_seen: bool) -> None:
        self._ask, self._hearing, self._is_seen = ask, hearing, is_seen

    def pause(self, left: float, wakes: Callable[[Event], bool]) -> None:
        """Return when the next query is due, or after ``left`` seconds.

        It is due when an event ``wakes``, and when the event stream begins or ends: events may
        have been missed.
        """
        began, hearing = time.monotonic(), self._hearing
        hearing.follow(self._ask.daemon)
        hearing.connect_where_due(left)
        was_live = hearing.is_live
        until = began + min(left, self._longest())
        while (rest := until - time.monotonic()) > 0:
            events = hearing.hear(rest)
            if hearing.is_live is not was_live:
                return
            # an older daemon sends all kinds
            if any(wakes(event) for event in events if event.kind in KINDS):
                until = min(until, began + _SHORTEST_SECONDS)

    def _longest(self) -> float:
        live, crowded = self._hearing.is_live, self._hearing.is_crowded
        if not (live or crowded):
            return _USUAL_SECONDS
        if self._is_seen:
            return _SEEN_SECONDS
        # spread clients
        return (_RARE_SECONDS if live else _CROWDED_SECONDS) * random.uniform(0.75, 1.25)  # noqa: S311
