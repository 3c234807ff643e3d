"""Who waits for a state: thousands are looked after by one task, which looks for all of them.

Those who wait for the same get the same bytes. They are answered a few at a time, so that others
who ask meanwhile have their turn; one who went away is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from warmwatch_monitor.errors import UnknownRunError
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.views.kept import Body

LOOK_SECONDS = 0.05
_AT_ONCE = 25


class Wanted(NamedTuple):
    """What somebody waits for.

    Attributes:
        goal, run: as asked. began: seconds since the epoch of the Snapshot that the wait began
        with, ``None`` where there was none: what had ended before does not answer. began_ns: the
        same on the monotonic clock, which nobody sets.
    """

    goal: str
    run: str | None
    began: float | None
    began_ns: int


# the answer for those who want it, or None where it is not time yet. Raises UnknownRunError.
Judge = Callable[[Snapshot, Wanted], Body | None]
Gone = Callable[[], Awaitable[None]]  # returns when the client went away


class Waiters:
    """Everybody who waits, by what is waited for. Used on the event loop alone."""

    def __init__(self, latest: Callable[[], Snapshot], judge: Judge) -> None:
        self._latest, self._judge = latest, judge
        self._waiting: dict[Wanted, set[asyncio.Future[Body]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, wanted: Wanted, timeout: float, gone: Gone) -> Body | None:
        """The answer once it is time for it; ``None`` at the timeout, or where nobody waits.

        Raises:
            UnknownRunError: there is no such run, now or any more.
        """
        body = self._judge(self._latest(), wanted)
        if body is not None:
            return body
        answer: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(wanted, set()).add(answer)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        left = asyncio.ensure_future(gone())
        try:
            await asyncio.wait((answer, left), timeout=timeout, return_when="FIRST_COMPLETED")
            return answer.result() if answer.done() else None
        finally:
            left.cancel()
            self._forget(wanted, answer)

    def _forget(self, wanted: Wanted, answer: asyncio.Future[Body]) -> None:
        others = self._waiting.get(wanted)
        if others is not None:
            others.discard(answer)
            if not others:
                del self._waiting[wanted]

    async def _look(self) -> None:
        """Look at each new Snapshot for as long as anybody waits."""
        seen: Snapshot | None = None
        while self._waiting:
            snapshot = self._latest()
            if snapshot is not seen:
                seen = snapshot
                for wanted in list(self._waiting):
                    await self._answer(snapshot, wanted)
            await asyncio.sleep(LOOK_SECONDS)

    async def _answer(self, snapshot: Snapshot, wanted: Wanted) -> None:
        """Answer those who want this, where it is time."""
        body, problem = None, None
        try:
            body = self._judge(snapshot, wanted)
        except UnknownRunError as error:
            problem = error
        if body is None and problem is None:
            return
        for number, answer in enumerate(tuple(self._waiting.pop(wanted, ()))):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            if answer.done():
                continue
            if body is not None:
                answer.set_result(body)
            elif problem is not None:
                answer.set_exception(UnknownRunError(problem.run, problem.known))
