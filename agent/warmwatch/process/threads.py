"""The agent's threads, and a queue that runs work items one at a time.

Signals must reach the training's main thread, so the agent's threads mask them. The queue never
blocks its caller: the thread that finds it idle runs all queued items.

Two threads watch while there is something to watch: long activities, and quiet processes. An event
that needs a watch starts its thread, and the thread ends some seconds after the need: an ordinary
warm training has none. A watch needs the interpreter, so it calls nothing while a hang holds the
GIL.
"""

from __future__ import annotations

import math
import signal

# ``signal.pthread_sigmask`` runs Python code, in which a signal handler could raise.
from _signal import pthread_sigmask  # type: ignore[import-not-found]
from _thread import LockType, allocate_lock, get_ident, start_new_thread
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from warmwatch._guard import pass_on, report

_ALL = signal.valid_signals()


class MaskedThread:
    """Runs ``run`` once, on a new thread with all signals masked."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._threads: dict[None, list[int]] = {}

    def start(self) -> bool:
        """Start the thread if it was not; whether it is. If the system refuses, call again."""
        started: list[int] = []
        try:
            if self._threads.setdefault(None, started) is started:
                _start(self._run, started)
        except RuntimeError as error:  # the process may have no more threads
            pass_on(error)
        finally:
            if not started and self._threads and self._threads[None] is started:
                del self._threads[None]
        return bool(self._threads)

    def started(self) -> bool:
        """Whether the thread was started; it may have ended."""
        return bool(self._threads)

    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return get_ident() in self._threads.get(None, ())


def locked() -> LockType:
    """A new lock in the locked state: ``acquire`` waits until another thread releases it."""
    lock = allocate_lock()
    lock.acquire()
    return lock


def release(lock: LockType) -> None:
    """Release ``lock`` if it is locked. Never waits; safe in a signal handler."""
    if not lock.locked():
        return
    try:
        lock.release()
    except RuntimeError as error:  # another thread released it first
        pass_on(error)


def _start(run: Callable[[], None], started: list[int]) -> None:
    """Start a thread and append its id to ``started``. Always restores the caller's signal mask.

    Raises:
        RuntimeError: the system refuses another thread.
    """
    before = pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        pthread_sigmask(signal.SIG_BLOCK, _ALL)
        started.extend(map(start_new_thread, (run,), ((),)))
    finally:
        pthread_sigmask(signal.SIG_SETMASK, before)


class SerialQueue:
    """Work items, executed in order by one thread at a time."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._turn: dict[None, object] = {}  # the token of the thread that executes

    def post(self, work: Callable[..., None], *args: Any) -> None:
        """Queue ``work(*args)``, and execute all queued items unless another thread does."""
        self._waiting.append((work, args))
        # Check again after giving up the turn: items may have been queued meanwhile.
        while self._waiting and not self._turn:
            mine = object()
            try:
                if self._turn.setdefault(None, mine) is mine:
                    while self._waiting:
                        work, args = self._waiting.popleft()
                        work(*args)
            finally:
                if self._turn and self._turn[None] is mine:
                    del self._turn[None]


_LONGEST_NAP = 5.0  # seconds: an activity may end without an event
_RETRY_NS = 10**9  # the process was not warm when expected: the next attempt


class WatchThread:
    """At most one thread, which runs ``watch`` while it is ``needed``.

    Args:
        name: of the watch, for errors. needed: whether there is something to watch now.
        watch: returns when that is over; it waits with :meth:`sleep`.
    """

    def __init__(self, name: str, needed: Callable[[], bool], watch: Callable[[], None]) -> None:
        self._name, self._needed, self._watch = name, needed, watch
        self._turn: dict[None, MaskedThread] = {}  # the thread that runs, if any
        self._wake = locked()

    @property
    def runs(self) -> bool:
        return bool(self._turn)

    def start(self) -> None:
        """Start the thread if it is needed and does not run. Never waits."""
        if self._turn or not self._needed():
            return
        thread = MaskedThread(self._run)
        try:
            if self._turn.setdefault(None, thread) is thread:
                thread.start()
        finally:  # a signal handler may raise; without a thread the next event tries again
            if self._turn.get(None) is thread and not thread.started():
                self._turn.clear()

    def wake(self) -> None:
        """End the present :meth:`sleep`, or the next one."""
        release(self._wake)

    def sleep(self, seconds: float) -> None:
        """On the thread: wait for this time, or until :meth:`wake`."""
        self._wake.acquire(timeout=seconds)

    def _run(self) -> None:
        me = self._turn.get(None)
        while True:
            try:
                self._watch()
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report(self._name, error)
                return  # keep the turn: another thread would fail too
            self._turn.clear()
            # An event meanwhile may have found this thread still running.
            if me is None or not self._needed():
                return
            if self._turn.setdefault(None, me) is not me:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """What to do when an activity is ``after`` seconds old.

    Attributes:
        act: called with its begin in monotonic nanoseconds, and whether it is the first call for
            this activity. It may wait for a disk. again: call again; each pause is twice the one
            before.
    """

    after: float
    act: Callable[[int, bool], None]
    again: bool = False


class ActivityWatch:
    """Calls ``alarms`` on a thread while an activity is in progress; needs no thread without
    alarms.

    A compilation may take a millisecond, so its begin and end only set and read flags while the
    thread is there. The thread never sleeps longer than an activity that begins meanwhile may
    take, and ends after a sleep in which none began.

    Args:
        since: begin of the activity in progress in monotonic nanoseconds, 0 if there is none.
    """

    def __init__(self, since: Callable[[], int], alarms: Sequence[Alarm]) -> None:
        self._since, self._alarms, self._begun = since, tuple(alarms), False
        self._thread = WatchThread("stacks", self._is_needed, self._follow)

    @property
    def runs(self) -> bool:
        return self._thread.runs

    def begun(self) -> None:
        """An activity began on the calling thread: watch it."""
        self._begun = True
        self._thread.start()

    def stop(self) -> None:
        self._alarms = ()
        self._thread.wake()

    def _is_needed(self) -> bool:
        return bool(self._alarms and self._since())

    def _follow(self) -> None:
        """Watch until no activity was in progress during a whole sleep, or :meth:`stop`."""
        watched, due = 0, dict[Alarm, float]()
        while (alarms := self._alarms) and (self._begun or self._since()):
            self._begun = False
            since = self._since()
            naps = [_LONGEST_NAP, *(alarm.after for alarm in alarms)]
            if since:
                if since != watched:
                    watched, due = since, {alarm: alarm.after for alarm in alarms}
                age = _age(since)
                for alarm in [item for item in alarms if age >= due[item]]:
                    alarm.act(since, due[alarm] == alarm.after)
                    due[alarm] = 2 * _age(since) if alarm.again else math.inf
                naps.append(min(due.values()) - _age(since))
            self._thread.sleep(max(0.001, min(naps)))


def _age(since: int) -> float:
    return (monotonic_ns() - since) / 1e9


class QuietWatch:
    """Calls ``act`` on a thread once a process without steps is warm.

    Nothing happens in such a process when it becomes warm, so a thread waits for that: from the end
    of an activity until the process is warm, marks steps or has an optimizer. It sleeps until the
    earliest time at which the process can be warm.

    Args:
        due: that time in monotonic nanoseconds, as of now; ``None``: there is no need to wait.
        act: reports it; called again after the next activity.
    """

    def __init__(self, due: Callable[[], int | None], act: Callable[[], None]) -> None:
        self._due, self._act, self._stopped = due, act, False
        self._thread = WatchThread("quiet", self._is_needed, self._wait)

    def begun(self) -> None:
        """An activity may have ended on the calling thread: wait from now on, if needed."""
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._thread.wake()

    def _is_needed(self) -> bool:
        return not self._stopped and self._due() is not None

    def _wait(self) -> None:
        while not self._stopped and (due := self._due()) is not None:
            now = monotonic_ns()
            if due > now:
                self._thread.sleep((due - now) / 1e9)
                continue
            self._act()
            due_now = self._due()
            if due_now is None or due_now > now:
                return
            self._thread.sleep(_RETRY_NS / 1e9)  # the state is not what this watch expects
