"""The pause between two queries of ``wait``: until an event, if the daemon sends them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from warmwatch_monitor.client.answers import Asker
from warmwatch_monitor.client.events import Event, EventClient

# what can end a wait, or begin one; all else of a run changes words alone
KINDS = ("run", "attached", "gone", "condition")
_USUAL_SECONDS = 0.25
_SHORTEST_SECONDS = 0.2  # between two questions, however much happens
_RARE_SECONDS = 60.0
_CROWDED_SECONDS = 5.0
_SEEN_SECONDS = 1.0


class PollInterval:
    """Pauses between the questions of ``ask``.

    Args:
        is_seen: somebody looks at a terminal, and wants to see seconds go on.
    """

    def __init__(self, ask: Asker, hearing: EventClient, *, is_seen: bool) -> None:
        self._ask, self._hearing, self._is_seen = ask, hearing, is_seen

    def pause(self, left: float, wakes: Callable[[Event], bool]) -> None:
        """Return when it is time to ask again, and when ``left`` seconds are over.

        It is where an event ``wakes``, and where listening has begun or has broken off: what
        happened meanwhile nobody was told.
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
            # an older daemon tells of all kinds
            if any(wakes(event) for event in events if event.kind in KINDS):
                until = min(until, began + _SHORTEST_SECONDS)

    def _longest(self) -> float:
        told, crowded = self._hearing.is_live, self._hearing.is_crowded
        if not (told or crowded):
            return _USUAL_SECONDS
        if self._is_seen:
            return _SEEN_SECONDS
        # not all of a crowd in the same moment
        return (_RARE_SECONDS if told else _CROWDED_SECONDS) * random.uniform(0.75, 1.25)  # noqa: S311
