"""Requests that wait for a state: one task serves thousands of them.

They are answered a few at a time, with a pause after each new answer, so that other requests get
their turn. A disconnected client is dropped, and nothing is made for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from starlette.types import Receive

from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.server.api.cached import Body

POLL_SECONDS = 0.05
_AT_ONCE = 25


class Wanted(NamedTuple):
    """What a client waits for.

    Attributes:
        goal, run: as requested. began: seconds since the epoch of the Snapshot at the begin,
            ``None`` if there was none: a run that had ended before does not answer the wait.
            began_ns: the same on the monotonic clock, which is never set.
    """

    goal: str
    run: str | None
    began: float | None
    began_ns: int


class GoneError(Exception):
    """The waiting client has disconnected."""


class StoppingError(Exception):
    """The daemon stops before the state was reached."""

    def __init__(self) -> None:
        super().__init__("the daemon is stopping; send the request again")


# the answer for these waiters, or None if it is too early
Judge = Callable[[Snapshot, Wanted], Body | None]
Gone = Callable[[], Awaitable[None]]  # returns when the client has disconnected


class Waiters:
    """All waiting clients, by what they wait for. Used only on the event loop."""

    def __init__(self, latest: Callable[[], Snapshot], judge: Judge) -> None:
        self._latest, self._judge = latest, judge
        self._waiting: dict[Wanted, set[asyncio.Future[Body | None]]] = {}
        self._waker: asyncio.Task[None] | None = None
        self._leaving = False
        self._turns = 0

    async def wait(self, wanted: Wanted, timeout: float, gone: Gone) -> Body | None:
        """The answer when it is ready; ``None`` at the timeout.

        Raises:
            GoneError: the client has disconnected. StoppingError: the daemon stops.
        """
        body = self._judge(self._latest(), wanted)
        if body is not None:
            return body
        if self._leaving:
            raise StoppingError
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Body | None] = loop.create_future()
        self._waiting.setdefault(wanted, set()).add(answer)
        if self._waker is None or self._waker.done():
            self._waker = asyncio.create_task(self._wake_on_news())
        # Callbacks: asyncio.wait() would double the objects of each of thousands of waits.
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
        """End all waits, because the daemon stops."""
        self._leaving = True
        for answers in self._waiting.values():
            for answer in answers:
                if not answer.done():
                    answer.set_exception(StoppingError())

    def _forget(self, wanted: Wanted, answer: asyncio.Future[Body | None]) -> None:
        others = self._waiting.get(wanted)
        if others is not None:
            others.discard(answer)
            if not others:
                del self._waiting[wanted]
        if not answer.cancel() and not answer.cancelled():
            answer.exception()  # mark it as retrieved

    async def _wake_on_news(self) -> None:
        """Check each new Snapshot as long as any client waits."""
        seen: Snapshot | None = None
        while self._waiting:
            snapshot = self._latest()
            if snapshot is not seen:
                seen = snapshot
                made: Body | None = None
                for wanted in list(self._waiting):
                    await self._turn()
                    made = await self._answer(wanted, made)
            await asyncio.sleep(POLL_SECONDS)

    async def _answer(self, wanted: Wanted, made: Body | None) -> Body | None:
        """Answer the clients that wait for this, if it is ready; returns the last answer ``made``.

        Uses the present Snapshot, like new requests: the cache holds one Snapshot only.
        """
        if wanted not in self._waiting:
            return made
        body, problem = None, None
        try:
            body = self._judge(self._latest(), wanted)
        except Exception as error:  # noqa: BLE001 - raised to these clients only
            problem = error
        if body is None and problem is None:
            return made
        if body is not made:
            await asyncio.sleep(0)  # making it took time: let others run
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
        """Count one client; now and then give other tasks their turn."""
        self._turns += 1
        if self._turns % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _expire(answer: asyncio.Future[Body | None]) -> None:
    """The timeout has come."""
    if not answer.done():
        answer.set_result(None)


def _leave(answer: asyncio.Future[Body | None], _: asyncio.Future[None]) -> None:
    """The client has disconnected, or was answered."""
    if not answer.done():
        answer.set_exception(GoneError)


async def disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
