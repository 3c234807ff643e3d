"""Work that any thread hands in and one at a time does, where nobody may wait for another.

What is handed in from a signal handler or a garbage collection, while something is being done, is
done right after. A signal handler may raise wherever Python calls something, so the turn is taken
by one call that either stores our mark or finds another's; and what is given back is decided by the
mark that is stored, without a call in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Inbox:
    """What was handed in and is not done yet, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._turn: dict[None, object] = {}  # whose turn it is to empty it

    def post(self, work: Callable[[], None]) -> None:
        """Hand in ``work``, and do what is there unless somebody is at it."""
        self._waiting.append(work)
        # Asked again after letting go: some may have come between the last look and that.
        while self._waiting and not self._turn:
            mine = object()
            try:
                if self._turn.setdefault(None, mine) is mine:
                    while self._waiting:
                        self._waiting.popleft()()
            finally:
                if self._turn and self._turn[None] is mine:
                    del self._turn[None]
