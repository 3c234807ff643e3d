"""A clock for the GPU source's tests."""

from __future__ import annotations

from warmwatch_monitor.base.clock import Clock

SECOND = 10**9


class Time:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.ns = 1_000 * SECOND

    def clock(self) -> Clock:
        return Clock(monotonic_ns=lambda: self.ns)

    def passes(self, seconds: float) -> None:
        self.ns += round(seconds * SECOND)
