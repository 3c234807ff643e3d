"""A thread that receives no signals, and a queue that runs work items one at a time.

Signals must reach the training's main thread, so the agent's threads mask them. The queue never
blocks its caller: the thread that finds it idle runs all queued items.
"""

from __future__ import annotations

import signal

# ``signal.pthread_sigmask`` runs Python code, in which a signal handler could raise.
from _signal import pthread_sigmask  # type: ignore[import-not-found]
from _thread import LockType, allocate_lock, get_ident, start_new_thread
from collections import deque
from collections.abc import Callable
from typing import Any

from warmwatch._guard import pass_on

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
