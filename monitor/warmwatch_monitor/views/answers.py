"""The answers over the latest Snapshot: ``/status``, waiting for it, and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from warmwatch.verdict import ENDED
from warmwatch_monitor.export import series
from warmwatch_monitor.export.answer import reached, status
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.views.kept import Body, Kept, json_body
from warmwatch_monitor.views.waiters import Gone, Waiters, Wanted
from warmwatch_monitor.views.waiting import is_reached


class Answers:
    """What is answered, each made once for a Snapshot. Used on the event loop alone."""

    def __init__(self, latest: Callable[[], Snapshot], version: str) -> None:
        self._latest, self._version = latest, version
        self._kept = Kept()
        self._waiters = Waiters(latest, self._in_time)

    def status(self, run: str | None = None) -> Body:
        """The answer as it is now. Raises UnknownRunError."""
        snapshot = self._latest()
        key = ("status", run)
        return cast(Body, self._kept.get(snapshot, key, lambda: json_body(status(snapshot, run))))

    def metrics(self, accept: str | None) -> Body:
        """The series, in the format that ``Accept`` asks for."""
        snapshot, kind = self._latest(), series.content_type(accept)

        def make() -> Body:
            return Body(*series.render(snapshot, accept, version=self._version))

        return cast(Body, self._kept.get(snapshot, ("metrics", kind), make))

    async def wait(self, wanted: Wanted, timeout: float, gone: Gone) -> Body:
        """The answer when ``wanted`` is reached or can come no more, or at the timeout.

        Raises:
            UnknownRunError: there is no such run, now or any more.
        """
        body = await self._waiters.wait(wanted, timeout, gone)
        return self._waited(self._latest(), wanted) if body is None else body

    def _in_time(self, snapshot: Snapshot, wanted: Wanted) -> Body | None:
        key = ("over", wanted)
        over = self._kept.get(snapshot, key, lambda: _is_over(snapshot, wanted))
        return self._waited(snapshot, wanted) if over else None

    def _waited(self, snapshot: Snapshot, wanted: Wanted) -> Body:
        def make() -> Body:
            answer = status(snapshot, wanted[1])
            return json_body({**answer, "reached": is_reached(answer, wanted[0])})

        return cast(Body, self._kept.get(snapshot, ("waited", wanted), make))


def _is_over(snapshot: Snapshot, wanted: Wanted) -> bool:
    """Whether the goal is reached, or nothing that is asked about lives. Raises UnknownRunError."""
    goal, run = wanted
    is_there = goal != "ended" and reached(snapshot, goal, run)
    status_known = [view.state for view in snapshot.runs if run in (None, view.run)]
    return is_there or (bool(status_known) and all(state in ENDED for state in status_known))
