"""Publishes the latest Snapshot, and reports whether new ones are still made.

Its health is listed among the sources. The age of a Snapshot is checked when it is requested,
because publishing may have stopped since.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.errors import described
from warmwatch_monitor.model import Snapshot, SourceHealth
from warmwatch_monitor.pipeline.assembly import Assembled
from warmwatch_monitor.pipeline.feed import NOT_YET

PUBLISHER = "publisher"
_SHORTEST_PATIENCE = 5.0

Follower = Callable[[Snapshot], None]


class Publisher:
    """Publishes the results of ``assemble``. ``patience``: seconds until one is overdue."""

    def __init__(
        self, assemble: Callable[[], Assembled], empty: Snapshot, clock: Clock, patience: float
    ) -> None:
        self._assemble, self._clock = assemble, clock
        self._patience = max(_SHORTEST_PATIENCE, patience)
        self._last_success: float | None = None
        health = SourceHealth(source=PUBLISHER, up=False, error=NOT_YET)
        self._latest = replace(empty, sources=(*empty.sources, health))
        self._late: tuple[Snapshot, int, Snapshot] | None = None
        self._followers: list[Follower] = []
        self._untold: str | None = None
        self.cpu_seconds = 0.0  # of the last Snapshot

    def follow(self, follower: Follower) -> None:
        """Give ``follower`` each Snapshot from now on, in the order in which they are published."""
        self._followers.append(follower)

    def publish(self) -> Snapshot:
        """Make a Snapshot and publish it. An exception becomes the publisher's health."""
        began_ns, began_cpu = self._clock.monotonic_ns(), time.thread_time()
        try:
            made = self._assemble()
            untold = () if self._untold is None else (self._untold,)
            snapshot, problem = made.snapshot, "; ".join((*made.problems, *untold)) or None
        except Exception as error:  # noqa: BLE001 - its thread must live, and this must be seen
            snapshot = replace(self._latest, sources=_others(self._latest))
            problem = described(error)
        if problem is None:
            self._last_success = self._clock.epoch()
        health = SourceHealth(
            source=PUBLISHER,
            up=problem is None,
            last_success=self._last_success,
            read_seconds=(self._clock.monotonic_ns() - began_ns) / 1e9,
            error=problem,
        )
        self._latest = snapshot = replace(snapshot, sources=(*snapshot.sources, health))
        self._tell(snapshot)
        self.cpu_seconds = time.thread_time() - began_cpu
        return snapshot

    def _tell(self, snapshot: Snapshot) -> None:
        """Call the followers. An exception shows in the health of the next Snapshot."""
        self._untold = None
        for follower in self._followers:
            try:
                follower(snapshot)
            except Exception as error:  # noqa: BLE001 - its thread must live, and this must be seen
                self._untold = f"telling what has changed: {described(error)}"

    def latest(self) -> Snapshot:
        """The latest Snapshot; an overdue one has its age, which changes once a second.

        Answers made from a Snapshot are cached while it is the same object.
        """
        snapshot = self._latest
        age = (self._clock.monotonic_ns() - snapshot.now_ns) / 1e9
        if age <= self._patience:
            return snapshot
        known = self._late
        if known is None or known[0] is not snapshot or known[1] != int(age):
            self._late = known = (snapshot, int(age), self._aged(snapshot, age))
        return known[2]

    def _aged(self, snapshot: Snapshot, age: float) -> Snapshot:
        health = SourceHealth(
            source=PUBLISHER,
            up=False,
            last_success=self._last_success,
            error=f"nothing has been published for {age:.0f} s{_why(snapshot)}",
        )
        return replace(snapshot, late_seconds=age, sources=(*_others(snapshot), health))


def _why(snapshot: Snapshot) -> str:
    """The error of the last attempt, if it failed."""
    (health,) = (one for one in snapshot.sources if one.source == PUBLISHER)
    return f": {health.error}" if health.error and health.error != NOT_YET else ""


def _others(snapshot: Snapshot) -> tuple[SourceHealth, ...]:
    return tuple(health for health in snapshot.sources if health.source != PUBLISHER)
