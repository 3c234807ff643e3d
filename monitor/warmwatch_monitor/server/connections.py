"""Limits on connections: how many, and how long an idle one lives.

Half-sent requests and idle connections have a time to live, counted from the connect or from the
last answer, whatever arrives until then. The same holds for clients that do not read their answers.
Above the limit, the connection that has been idle longest makes room for a new one. A new one is
refused only if all of them wait for an answer.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

REQUEST_SECONDS = 10.0
IDLE_SECONDS = 60.0
TAKE_SECONDS = 60.0
MOST = 10_000
_RESERVE = 128  # descriptors for records, NVML and the rest
_LOG_SECONDS = 60.0

Close = Callable[[], object]


def most_connections(descriptors: int) -> int:
    """The maximum number of connections for a process with this many descriptors."""
    return max(1, min(MOST, max(descriptors - _RESERVE, descriptors // 2)))


class Connections:
    """All connections, by their number. Used only on the event loop.

    Args:
        most: the maximum number. log: logs a sentence; called at most once a minute.
    """

    def __init__(
        self,
        most: int,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most, self._log, self._clock = most, log, clock
        self._close: dict[int, Close] = {}
        # in the order in which they became idle; finding a dict's first key would be slow
        self._quiet: OrderedDict[int, float] = OrderedDict()
        self._stuck: set[int] = set()  # a subset of the idle ones
        self._next = 0
        self._logged_at: float | None = None

    def __len__(self) -> int:
        return len(self._close)

    def opened(self, close: Close) -> int | None:
        """Add a connection, which ``close`` ends; its number, or ``None`` if there is no room."""
        if len(self._close) >= self.most and not self.make_room():
            return None
        self._next += 1
        self._close[self._next] = close
        self._quiet[self._next] = self._clock() + REQUEST_SECONDS
        return self._next

    def becomes(self, number: int, close: Close) -> None:
        """Replace the function that ends it."""
        if number in self._close:
            self._close[number] = close

    def requested(self, number: int) -> None:
        """It has sent a complete request, and waits for the answer."""
        if number not in self._stuck:
            self._quiet.pop(number, None)

    def answered(self, number: int) -> None:
        """Its answer is complete, and it may send another request."""
        if number not in self._stuck:
            self._falls_quiet(number, IDLE_SECONDS)

    def stuck(self, number: int) -> None:
        """It does not read its answer, or the rest of one."""
        self._falls_quiet(number, TAKE_SECONDS)
        if number in self._close:
            self._stuck.add(number)

    def moves(self, number: int, *, answering: bool) -> None:
        """It has read what was sent; ``answering``: more follows."""
        self._stuck.discard(number)
        if answering:
            self.requested(number)
        else:
            self.answered(number)

    def closed(self, number: int) -> None:
        self._close.pop(number, None)
        self._quiet.pop(number, None)
        self._stuck.discard(number)

    def make_room(self) -> bool:
        """End the connection that has been idle longest; returns whether there was one."""
        self.flooded(f"{len(self._close)} connections at the same time, the limit")
        longest = next(iter(self._quiet), None)
        if longest is not None:
            self._end(longest)
        return longest is not None

    def sweep(self) -> None:
        """End connections whose time to live is over."""
        now = self._clock()
        for number in [number for number, until in self._quiet.items() if until <= now]:
            self._end(number)

    def flooded(self, what: str) -> None:
        """Log that there are too many, at most once a minute."""
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            self._log(
                f"{what}: connections without a request are closed; if all of them wait for an "
                "answer, new ones get a 503"
            )

    def _falls_quiet(self, number: int, seconds: float) -> None:
        if number in self._close:
            self._quiet.pop(number, None)
            self._quiet[number] = self._clock() + seconds

    def _end(self, number: int) -> None:
        close = self._close[number]
        self.closed(number)
        close()
