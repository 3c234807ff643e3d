"""Requests that wait for a state: one task serves thousands of them.

They are answered a few at a time, and what had to be made anew is followed by a pause, so that
others who ask meanwhile have their turn; one who went away is forgotten, and nothing made for him.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from warmwatch_monitor.api.cached import Body
from warmwatch_monitor.model import Snapshot

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


class GoneError(Exception):
    """Who waited went away: there is nobody to answer."""


# the answer for those who want it, or None where it is not time yet
Judge = Callable[[Snapshot, Wanted], Body | None]
Gone = Callable[[], Awaitable[None]]  # returns when the client went away


class Waiters:
    """Everybody who waits, by what is waited for. Used on the event loop alone."""

    def __init__(self, latest: Callable[[], Snapshot], judge: Judge) -> None:
        self._latest, self._judge = latest, judge
        self._waiting: dict[Wanted, set[asyncio.Future[Body | None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._leaving = False
        self._turns = 0

    async def wait(self, wanted: Wanted, timeout: float, gone: Gone) -> Body | None:
        """The answer once it is time for it; ``None`` at the timeout.

        Raises:
            GoneError: nobody waits any more.
        """
        body = self._judge(self._latest(), wanted)
        if body is not None or self._leaving:
            return body
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Body | None] = loop.create_future()
        self._waiting.setdefault(wanted, set()).add(answer)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        # by callbacks: asyncio.wait() makes as much anew again for each of thousands
        timer = loop.call_later(timeout, _expire, answer)
        left = asyncio.ensure_future(gone())
        left.add_done_callback(partial(_leave, answer))
        try:
            return await answer
        finally:
            timer.cancel()
            left.cancel()
            self._forget(wanted, answer)

    def leave(self) -> None:
        """Let nobody wait any longer: everybody is answered as at the timeout."""
        self._leaving = True
        for answers in self._waiting.values():
            for answer in answers:
                if not answer.done():
                    answer.set_result(None)

    def _forget(self, wanted: Wanted, answer: asyncio.Future[Body | None]) -> None:
        others = self._waiting.get(wanted)
        if others is not None:
            others.discard(answer)
            if not others:
                del self._waiting[wanted]
        if not answer.cancel() and not answer.cancelled():
            answer.exception()  # of one who left as it was set: nobody else looks at it

    async def _look(self) -> None:
        """Look at each new Snapshot for as long as anybody waits."""
        seen: Snapshot | None = None
        while self._waiting:
            snapshot = self._latest()
            if snapshot is not seen:
                seen = snapshot
                made: Body | None = None
                for wanted in list(self._waiting):
                    await self._turn()
                    made = await self._answer(wanted, made)
            await asyncio.sleep(LOOK_SECONDS)

    async def _answer(self, wanted: Wanted, made: Body | None) -> Body | None:
        """Answer those who want this, where it is time; the answer that was ``made`` last.

        By the Snapshot of this moment, as all who ask now: what is kept is kept of one alone.
        """
        if wanted not in self._waiting:
            return made
        body, problem = None, None
        try:
            body = self._judge(self._latest(), wanted)
        except Exception as error:  # noqa: BLE001 - theirs alone, and the others go on to wait
            problem = error
        if body is None and problem is None:
            return made
        if body is not made:
            await asyncio.sleep(0)  # it was made just now, which takes its time
        for answer in tuple(self._waiting.pop(wanted, ())):
            await self._turn()
            if answer.done():
                continue
            if problem is not None:
                answer.set_exception(problem)
            else:
                answer.set_result(body)
        return body

    async def _turn(self) -> None:
        """One is looked after; now and then the others have their turn."""
        self._turns += 1
        if self._turns % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _expire(answer: asyncio.Future[Body | None]) -> None:
    """The timeout has come."""
    if not answer.done():
        answer.set_result(None)


def _leave(answer: asyncio.Future[Body | None], _: asyncio.Future[None]) -> None:
    """Who waited went away, or has been answered."""
    if not answer.done():
        answer.set_exception(GoneError)
