"""The answers over the latest Snapshot: ``/status``, waiting for it, and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from warmwatch.verdict import ENDED
from warmwatch_monitor.export import series
from warmwatch_monitor.export.answer import chosen, reached, status
from warmwatch_monitor.model import RunView, Snapshot
from warmwatch_monitor.views.kept import Body, Kept, json_body
from warmwatch_monitor.views.waiters import Gone, Waiters, Wanted
from warmwatch_monitor.views.waiting import END_GOALS, is_about, is_reached


class Answers:
    """What is answered, each made once for a Snapshot. Used on the event loop alone."""

    def __init__(self, latest: Callable[[], Snapshot], version: str) -> None:
        self._latest, self._version = latest, version
        self._kept = Kept()
        self._lived: dict[str, int] = {}  # when each run was seen alive last
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

    async def wait(self, goal: str, run: str | None, timeout: float, gone: Gone) -> Body:
        """The answer when ``goal`` is reached or can come no more, or at the timeout.

        Raises:
            UnknownRunError: there is no such run, now or any more.
        """
        # there is no epoch before the first look
        now = self._latest()
        began_ns = now.now_ns if now.epoch else 0
        wanted = Wanted(goal=goal, run=run, began=now.epoch or None, began_ns=began_ns)
        body = await self._waiters.wait(wanted, timeout, gone)
        return self._waited(self._latest(), wanted) if body is None else body

    def _in_time(self, snapshot: Snapshot, wanted: Wanted) -> Body | None:
        key = ("over", wanted)
        over = self._kept.get(snapshot, key, lambda: self._is_over(snapshot, wanted))
        return self._waited(snapshot, wanted) if over else None

    def _is_over(self, snapshot: Snapshot, wanted: Wanted) -> bool:
        """Whether it is reached, or none of the runs that it is about lives."""
        about = self._about(snapshot, wanted)
        is_there = wanted.goal != "ended" and reached(about, wanted.goal)
        return is_there or (bool(about) and all(view.state in ENDED for view in about))

    def _about(self, snapshot: Snapshot, wanted: Wanted) -> list[RunView]:
        """The runs that a wait is about, of those that are asked for. Raises UnknownRunError."""
        self._seen(snapshot)
        return [
            view
            for view in chosen(snapshot, wanted.run)
            if is_about(
                ends=wanted.goal in END_GOALS,
                lived=self._lived.get(view.run, -1) >= wanted.began_ns,
                attached_at=view.attached_at,
                began=wanted.began,
            )
        ]

    def _seen(self, snapshot: Snapshot) -> None:
        """Note which runs live; while anybody waits, each Snapshot comes by here."""
        known = {view.run for view in snapshot.runs}
        self._lived = {run: at for run, at in self._lived.items() if run in known}
        living = (view.run for view in snapshot.runs if view.state not in ENDED)
        self._lived.update(dict.fromkeys(living, snapshot.now_ns))

    def _waited(self, snapshot: Snapshot, wanted: Wanted) -> Body:
        def make() -> Body:
            answer = status(snapshot, wanted.run)
            names = {view.run for view in self._about(snapshot, wanted)}
            runs = [run for run in answer["runs"] if run["run"] in names]
            return json_body(
                {**answer, "reached": is_reached({**answer, "runs": runs}, wanted.goal)}
            )

        return cast(Body, self._kept.get(snapshot, ("waited", wanted), make))
