"""What ``top`` shows: answers, and the last hour of the daemon, or of what it has read itself."""

from __future__ import annotations

from typing import Any

from warmwatch_monitor.client.answers import answer_source
from warmwatch_monitor.last_hour.columns import columns
from warmwatch_monitor.last_hour.ring import LastHour

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
