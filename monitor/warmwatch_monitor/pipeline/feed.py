"""One data source, polled: its last reading and its health.

This is the only place that turns a source's failure into health. At most one read of a source is in
progress: a driver that hangs must not be called again meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.errors import SourceError, described
from warmwatch_monitor.model import SourceHealth
from warmwatch_monitor.model.budgets import LONGEST_PAUSE, SHARE_OF_A_CORE

T = TypeVar("T")

NOT_YET = "it has not been read yet"

_SILENCE_SECONDS = 5.0
_SILENCE_INTERVALS = 3


class _Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    value: T | None
    health: SourceHealth
    at_ns: int


class Feed(Generic[T]):
    """Reads ``source`` every ``interval`` seconds; any thread may call :meth:`current`.

    ``problem`` returns why a value is incomplete: its source is then down, but the value counts.
    """

    def __init__(
        self,
        name: str,
        source: Callable[[], T],
        clock: Clock,
        interval: float,
        problem: Callable[[T], str | None] = lambda _: None,
    ) -> None:
        self._problem = problem
        self._name, self._source, self._clock, self._interval = name, source, clock, interval
        self._patience = max(_SILENCE_SECONDS, _SILENCE_INTERVALS * interval)
        self._last_success: float | None = None
        self._under_way = threading.Lock()
        self._thread: threading.Thread | None = None
        self._began_ns, self._unanswered = 0, False
        health = SourceHealth(source=name, up=False, error=NOT_YET)
        self._outcome: _Outcome[T] = _Outcome(value=None, health=health, at_ns=clock.monotonic_ns())

    def read(self) -> None:
        """Read the source now, unless a read is in progress. An exception becomes its health."""
        if not self._under_way.acquire(blocking=False):
            return
        try:
            self._outcome = self._read()
        finally:
            self._under_way.release()

    def read_within(self, seconds: float) -> bool:
        """Read it in a separate thread; returns whether it answered within ``seconds``.

        A read that hangs since an earlier call gets the rest of its time and no second thread.
        """
        thread = self._thread
        if thread is None or not thread.is_alive():
            self._thread = thread = threading.Thread(
                target=self.read, name=f"warmwatch-{self._name}", daemon=True
            )
            self._began_ns = self._clock.monotonic_ns()
            thread.start()
        waited = (self._clock.monotonic_ns() - self._began_ns) / 1e9
        thread.join(max(0.0, seconds - waited))
        self._unanswered = thread.is_alive()
        return not self._unanswered

    def _read(self) -> _Outcome[T]:
        began_ns = self._clock.monotonic_ns()
        value: T | None = None
        problem: str | None = None
        try:
            value = self._source()
            problem = self._problem(value)
        except SourceError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - a failing source is a fact to show, not a crash
            problem = described(error)
        if problem is None:
            self._last_success = self._clock.epoch()
        ended_ns = self._clock.monotonic_ns()
        health = SourceHealth(
            source=self._name,
            up=problem is None,
            last_success=self._last_success,
            read_seconds=(ended_ns - began_ns) / 1e9,
            error=problem,
        )
        return _Outcome(value=value, health=health, at_ns=ended_ns)

    def current(self, now_ns: int, awake_ns: int = 0) -> tuple[T | None, SourceHealth]:
        """The last value; ``None`` if the read failed or is overdue.

        ``awake_ns``: since when this process has run; while it was stopped no source could answer.
        """
        outcome = self._outcome
        silence = (now_ns - max(outcome.at_ns, awake_ns)) / 1e9
        timed_out = self._unanswered and outcome.health.error == NOT_YET
        if silence <= self._patience and not timed_out:
            return outcome.value, outcome.health
        health = SourceHealth(
            source=self._name,
            up=False,
            last_success=outcome.health.last_success,
            error=f"no answer for {silence:.0f} s",
        )
        return None, health

    def follow(
        self,
        stopping: threading.Event,
        after_read: Callable[[], None],
        also_spent: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Read until ``stopping`` is set, and call ``after_read`` after each read.

        The pause grows if a read and the work after it (``also_spent``) would take more CPU time
        than their share of a core.
        """
        while not stopping.is_set():
            began_ns, began_cpu = self._clock.monotonic_ns(), time.thread_time()
            self.read()
            after_read()
            spent = (self._clock.monotonic_ns() - began_ns) / 1e9
            cpu = time.thread_time() - began_cpu + also_spent()
            rest = min(cpu * (1 / SHARE_OF_A_CORE - 1), LONGEST_PAUSE)
            stopping.wait(max(0.01, self._interval - spent, rest))
