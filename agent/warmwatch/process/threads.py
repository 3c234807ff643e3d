"""Our threads: one that receives no signals, and a queue that runs work one item at a time.

Signals must reach the training's main thread, so ours mask them. The queue never blocks its
caller: the thread that finds it free runs what is queued.
"""

from __future__ import annotations

import signal
from _signal import pthread_sigmask  # type: ignore[import-not-found] # ``signal``'s calls Python
from _thread import LockType, allocate_lock, get_ident, start_new_thread
from collections import deque
from collections.abc import Callable

from warmwatch._guard import pass_on

_ALL = signal.valid_signals()


class MaskedThread:
    """Runs ``run`` once, on a thread of its own."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._threads: dict[None, list[int]] = {}

    def start(self) -> bool:
        """Start it, unless it was; whether it was. A later call tries again what is refused."""
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
        """Whether it was started, whatever became of it."""
        return bool(self._threads)

    def is_current(self) -> bool:
        """Whether it is the calling one."""
        return get_ident() in self._threads.get(None, ())


def taken() -> LockType:
    """A lock that is taken: who wants it waits until another thread lets it go."""
    lock = allocate_lock()
    lock.acquire()
    return lock


def release(lock: LockType) -> None:
    """Let it go, where it is taken. It never waits, and may interrupt itself."""
    if not lock.locked():
        return
    try:
        lock.release()
    except RuntimeError as error:  # another thread was faster
        pass_on(error)


def _start(run: Callable[[], None], started: list[int]) -> None:
    """Start it, and put its number into ``started``. The caller's mask is what it was all the same.

    Raises:
        RuntimeError: the process may have no more threads.
    """
    before = pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        pthread_sigmask(signal.SIG_BLOCK, _ALL)
        started.extend(map(start_new_thread, (run,), ((),)))
    finally:
        pthread_sigmask(signal.SIG_SETMASK, before)


class SerialQueue:
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
