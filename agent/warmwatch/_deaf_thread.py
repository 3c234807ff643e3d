"""A thread of ours that no signal is delivered to, and the locks by which it is told something.

It is none of ``threading``'s, so whoever joins all threads does not wait for it, and takes no
signals, so the training's come where they came before.

A signal handler may raise wherever Python calls something. So what must not come apart, such as to
start the thread and to know that it was started, is one call.
"""

from __future__ import annotations

import signal
from _signal import pthread_sigmask  # type: ignore[import-not-found] # ``signal``'s calls Python
from _thread import LockType, allocate_lock, get_ident, start_new_thread
from collections.abc import Callable

from warmwatch._guard import pass_on

_ALL = signal.valid_signals()


class DeafThread:
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
