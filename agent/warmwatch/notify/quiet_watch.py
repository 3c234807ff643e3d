"""The timer of a process without steps: it becomes warm when nothing has compiled for long.

Nothing happens in such a process at the moment when it becomes warm, so a thread has to wait for
it. The end of an activity starts the thread, and it ends when the process is warm, marks steps or
has an optimizer: an ordinary training has none. It sleeps until the earliest moment at which the
process can be warm, so it wakes a few times in a warm-up.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns

from warmwatch._guard import report
from warmwatch.process.threads import MaskedThread, locked, release

_AGAIN_NS = 10**9  # where it was not warm when it could be: the next look


class QuietWatch:
    """Calls ``act`` on its thread once the process is warm.

    Args:
        due: when that can be in monotonic nanoseconds, as of now; ``None``: there is no need to
            wait. act: tells of it; called again after the next activity.
    """

    def __init__(self, due: Callable[[], int | None], act: Callable[[], None]) -> None:
        self._due, self._act = due, act
        self._turn: dict[None, MaskedThread] = {}  # the thread that waits, if any
        self._wake = locked()
        self._stopped = False

    def begun(self) -> None:
        """An activity may have ended on the calling thread: wait from now on, if there is need."""
        if self._turn or self._stopped or self._due() is None:
            return
        thread = MaskedThread(self._run)
        try:
            if self._turn.setdefault(None, thread) is thread:
                thread.start()
        finally:  # a signal handler may raise; without a thread the next event tries again
            if self._turn.get(None) is thread and not thread.started():
                self._turn.clear()

    def stop(self) -> None:
        """Wait no more."""
        self._stopped = True
        release(self._wake)

    # The thread.

    def _run(self) -> None:
        me = self._turn.get(None)
        while True:
            try:
                self._wait()
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("quiet", error)
                return  # and keeps its turn: no other thread will do better
            self._turn.clear()
            # an activity that ended meanwhile may have found this thread still waiting
            if me is None or self._stopped or self._due() is None:
                return
            if self._turn.setdefault(None, me) is not me:
                return

    def _wait(self) -> None:
        while not self._stopped and (due := self._due()) is not None:
            now = monotonic_ns()
            if due > now:
                self._wake.acquire(timeout=(due - now) / 1e9)
                continue
            self._act()
            due_now = self._due()
            if due_now is None or due_now > now:
                return
            self._wake.acquire(timeout=_AGAIN_NS / 1e9)  # the state is not what this watch expects
