"""A thread that runs only while compile activity is in progress.

The event that begins an activity starts it, the one that ends it has it end. It sleeps in between,
and calls whoever wants to know of an activity that has come to a certain age. What is called may
wait for a disk, which nobody waits for. It needs the interpreter: where a hang holds its lock (the
GIL), nothing is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic_ns

from warmwatch._guard import report
from warmwatch.process.threads import MaskedThread, locked, release

_LONGEST_NAP = 5.0  # seconds: an activity may end with no event of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Who wants to know of an activity that is ``after`` seconds old.

    Attributes:
        act: called with its begin in monotonic nanoseconds, and whether it is the first call for
            this activity. again: call again, each pause twice the one before.
    """

    after: float
    act: Callable[[int, bool], None]
    again: bool = False


class ActivityWatch:
    """Calls ``alarms`` on its thread; without any there is no thread.

    Args:
        since: begin of the activity in progress in monotonic nanoseconds, 0 where there is none.
    """

    def __init__(self, since: Callable[[], int], alarms: Sequence[Alarm]) -> None:
        self._since, self._alarms = since, tuple(alarms)
        self._turn: dict[None, MaskedThread] = {}  # the thread that watches, if any
        self._wake = locked()

    def begun(self) -> None:
        """Something began on the calling thread: have it watched."""
        if not self._alarms or self._turn or not self._since():
            return
        thread = MaskedThread(self._run)
        try:
            if self._turn.setdefault(None, thread) is thread:
                thread.start()
        finally:  # a signal handler may raise; without a thread the next event tries again
            if self._turn.get(None) is thread and not thread.started():
                self._turn.clear()

    def ended(self) -> None:
        """Something ended on the calling thread: where that was all, the watch is over."""
        if self._turn and not self._since():
            release(self._wake)

    def stop(self) -> None:
        """Watch no more."""
        self._alarms = ()
        release(self._wake)

    # The thread.

    def _run(self) -> None:
        me = self._turn.get(None)
        while True:
            try:
                self._follow()
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("stacks", error)
                return  # and keeps its turn: no other thread will do better
            self._turn.clear()
            # one that began meanwhile may have found us at it
            if me is None or not self._since() or not self._alarms:
                return
            if self._turn.setdefault(None, me) is not me:
                return

    def _follow(self) -> None:
        """Until nothing is in progress, or nobody wants to know."""
        watched, due = 0, dict[Alarm, float]()
        while (since := self._since()) and (alarms := self._alarms):
            if since != watched:
                watched, due = since, {alarm: alarm.after for alarm in alarms}
            age = _age(since)
            for alarm in [one for one in alarms if age >= due[one]]:
                alarm.act(since, due[alarm] == alarm.after)
                due[alarm] = 2 * _age(since) if alarm.again else math.inf
            nap = min(due.values()) - _age(since)
            self._wake.acquire(timeout=max(0.001, min(nap, _LONGEST_NAP)))


def _age(since: int) -> float:
    return (monotonic_ns() - since) / 1e9
