"""The answers over the latest Snapshot: ``/status``, waits on it, ``/metrics`` and the probes.

One task serves thousands of requests that wait for a state. They are answered a few at a time, with
a pause after each new answer, so that other requests get their turn. A disconnected client is
dropped, and nothing is made for it.

The parameters of requests are declared once: for the check of a request, and for ``/docs``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, NamedTuple, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct, to_builtins
from starlette.types import Receive

from warmwatch.shared.states import ENDED
from warmwatch_monitor import metrics as series
from warmwatch_monitor.base.errors import UnknownRunError, UnreadRunError
from warmwatch_monitor.last_hour.ring import SECONDS
from warmwatch_monitor.model.budgets import LONGEST_RUN
from warmwatch_monitor.model.snapshot import Snapshot, incomplete
from warmwatch_monitor.server.api.cached import Body, SnapshotCache, json_body
from warmwatch_monitor.status.document import chosen, reached, status
from warmwatch_monitor.status.goals import (
    END_GOALS,
    GOALS,
    LONGEST_WAIT_SECONDS,
    USUAL_WAIT_SECONDS,
    is_about,
    is_reached,
    reduced,
)
from warmwatch_monitor.status.schema.events import KINDS
from warmwatch_monitor.status.schema.status import Status

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


OnRequest = Callable[[str], None]  # takes the name of a requested run


def ignore(_run: str) -> None:
    """For an application without a poller."""


class Answers:
    """The answers, each made once per Snapshot. Used only on the event loop."""

    def __init__(
        self,
        latest: Callable[[], Snapshot],
        version: str,
        on_request: OnRequest = ignore,
    ) -> None:
        self._latest, self._version, self._on_request = latest, version, on_request
        self._daemon = series.DaemonSeries()
        self._cache = SnapshotCache()
        self._lived: dict[str, int] = {}  # by run: when it was last seen alive
        self._waiters = Waiters(latest, self._in_time)

    def status(self, run: str | None = None) -> Body:
        """The present status. Raises UnknownRunError."""
        snapshot = self._latest()
        if run is None:
            whole = self._cache.get_costly(snapshot, "status", lambda: self._body(snapshot, None))
            return cast(Body, whole)
        self._on_request(run)
        return self._body(snapshot, run)

    def leave(self) -> None:
        """Answer all waiting clients, because the daemon ends."""
        self._waiters.leave()

    def metrics(self, accept: str | None) -> Body:
        """The series, in the format of the ``Accept`` header."""
        snapshot, kind = self._latest(), series.content_type(accept)

        def make() -> Body:
            rendered = series.render(snapshot, accept, version=self._version, daemon=self._daemon)
            return Body(*rendered)

        return cast(Body, self._cache.get_costly(snapshot, ("metrics", kind), make))

    async def wait(self, goal: str, run: str | None, timeout: float, gone: Gone) -> Body:
        """The answer when ``goal`` is reached or has become impossible, or at the timeout.

        A run that disappears for a while may come back, for example if its record or its directory
        could not be read for a moment: the wait goes on.

        Raises:
            UnknownRunError: the run does not exist at the start, if the records can be read, or at
                the timeout.
            GoneError: the client has disconnected. StoppingError: the daemon stops.
        """
        snapshot = self._latest()
        if run is not None:
            self._on_request(run)
        if _lists_all_runs(snapshot):
            with suppress(UnreadRunError):
                chosen(snapshot, run)
        # there is no epoch before the first poll
        began_ns = snapshot.now_ns if snapshot.epoch else 0
        wanted = Wanted(goal=goal, run=run, began=snapshot.epoch or None, began_ns=began_ns)
        body = await self._waiters.wait(wanted, timeout, gone)
        return self._waited(self._latest(), wanted) if body is None else body

    def _in_time(self, snapshot: Snapshot, wanted: Wanted) -> Body | None:
        try:
            names = self._names(snapshot, wanted)
        except UnknownRunError:
            return None
        key = ("over", wanted.goal, wanted.run, names)
        over = self._cache.get(snapshot, key, lambda: _is_over(snapshot, wanted, names))
        return self._waited(snapshot, wanted) if over else None

    def _names(self, snapshot: Snapshot, wanted: Wanted) -> frozenset[str]:
        """The requested runs that a wait is about. Raises UnknownRunError."""
        value = self._cache.get(
            snapshot, ("times", wanted.run), lambda: self._times(snapshot, wanted.run)
        )
        return frozenset(
            name
            for name, lived_ns, attached_at in value
            if is_about(
                ends=wanted.goal in END_GOALS,
                lived=lived_ns >= wanted.began_ns,
                attached_at=attached_at,
                began=wanted.began,
            )
        )

    def _times(
        self, snapshot: Snapshot, run: str | None
    ) -> tuple[tuple[str, int, float | None], ...]:
        """For each requested run: when it was last seen at work (-1: never), and attached."""
        self._cache.get(snapshot, ("seen",), lambda: self._see(snapshot))
        return tuple(
            (view.run, self._lived.get(view.run, -1), view.attached_at)
            for view in chosen(snapshot, run)
        )

    def _see(self, snapshot: Snapshot) -> None:
        """Record which runs are at work; while a client waits, this sees each Snapshot."""
        # no open wait began earlier
        since = snapshot.now_ns - round(LONGEST_WAIT_SECONDS * 1e9)
        self._lived = {run: at for run, at in self._lived.items() if at >= since}
        for run in snapshot.runs:
            if any(
                view.living and "exiting" not in view.judgement.conditions for view in run.ranks
            ):
                self._lived[run.run] = snapshot.now_ns

    def _waited(self, snapshot: Snapshot, wanted: Wanted) -> Body:
        """The answer to a wait, shared by all clients that get the same content."""
        names = self._names(snapshot, wanted)

        def judge() -> bool:
            answer = to_builtins(self._answer(snapshot, wanted.run))
            runs = [run for run in answer["runs"] if run["run"] in names]
            return is_reached(reduced(answer, runs), wanted.goal)

        key = ("reached", wanted.goal, wanted.run, names)
        is_there = self._cache.get(snapshot, key, judge)

        def make() -> Body:
            body, word = self._body(snapshot, wanted.run), json_body(is_there).plain
            return Body(b'%b,"reached":%b}' % (body.plain[:-1], word), body.kind)

        return cast(Body, self._cache.get(snapshot, ("waited", wanted.run, is_there), make))

    def _body(self, snapshot: Snapshot, run: str | None) -> Body:
        made = self._cache.get(
            snapshot, ("status", run), lambda: json_body(self._answer(snapshot, run))
        )
        return cast(Body, made)

    def _answer(self, snapshot: Snapshot, run: str | None) -> Status:
        made = self._cache.get(snapshot, ("answer", run), lambda: status(snapshot, run))
        return cast(Status, made)


def _lists_all_runs(snapshot: Snapshot) -> bool:
    """Whether a run missing in it does not exist: it is new, and the records were read."""
    read = any(health.source == "records" for health in snapshot.sources)
    return read and incomplete(snapshot) is None and snapshot.late_seconds is None


def _is_over(snapshot: Snapshot, wanted: Wanted, names: frozenset[str]) -> bool:
    """Whether the goal is reached, or none of the runs lives."""
    about = [view for view in chosen(snapshot, wanted.run) if view.run in names]
    is_there = wanted.goal != "ended" and reached(about, wanted.goal)
    return is_there or (bool(about) and all(view.state in ENDED for view in about))


# the response of each status
RETRY: Mapping[int, Mapping[str, str]] = {404: {}, 503: {"Retry-After": "1"}}


def status_of(error: UnknownRunError) -> int:
    """404 only where all records were read."""
    return 503 if isinstance(error, UnreadRunError) else 404


def health(snapshot: Snapshot) -> tuple[int, str]:
    """Status and text of ``/-/healthy``: the daemon answers, and its data is current."""
    if snapshot.late_seconds is None:
        return 200, "healthy\n"
    return 503, f"nothing has been published for {snapshot.late_seconds:.0f} s\n"


def readiness(snapshot: Snapshot) -> tuple[int, str]:
    """Status and text of ``/-/ready``: the records have been read, can be read now, and all that
    is read is published."""
    sources = {health.source: health for health in snapshot.sources}
    records, publisher = sources.get("records"), sources.get("publisher")
    if records is None or not records.last_success:
        return 503, "the records have not been read yet\n"
    if snapshot.late_seconds is not None:
        return health(snapshot)
    if not records.up:
        return 503, "the records cannot be read now; see /status\n"
    if publisher is not None and not publisher.up:  # details need access
        return 503, "not all of the data is published; see /status\n"
    return 200, "ready\n"


_MOST = 16  # of one request: parsing thousands would block the event loop
_ANY_KIND = f"({'|'.join(KINDS)})"

Run = Annotated[str, Meta(max_length=LONGEST_RUN)]
_END = r"$(?!\n)"  # in Python `$` also matches before a line feed at the end
Goal = Annotated[str, Meta(pattern=f"^({'|'.join(GOALS)}){_END}")]


class NoParameters(Struct):
    """For a path without parameters."""


class StatusParameters(Struct):
    run: Annotated[
        Run | None,
        Meta(
            description="Only the run of this name. `NAME@USER` is that user's run. A name without "
            "a user is the run that is shown under it, or else the runs of all users with that "
            "name."
        ),
    ] = None
    wait: Annotated[
        Goal | None,
        Meta(
            description="Answer when this state is reached, when the requested runs have ended, or "
            "at the timeout. The status code is then always 200, and the key `reached` is true if "
            "the state was reached. `warm`: every living rank is warm, or the runs finished after "
            "they had been warm. `settled`: warm, and no living rank's speed still changes. "
            "`ended`: no rank lives. A run that had ended before the request counts for the ends: "
            "`ended`, `finished`, `failed` and `lost`. For other states it counts if it began "
            "within the last 10 s before the request; else the daemon waits for a new run.",
            extra_json_schema={"enum": list(GOALS)},
        ),
    ] = None
    timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=LONGEST_WAIT_SECONDS,
            description="With `wait`: answer after this many seconds at the latest.",
        ),
    ] = USUAL_WAIT_SECONDS


class EventsParameters(Struct):
    run: Annotated[
        Run | None,
        Meta(
            description="Only events of this run, and of data sources. The run may begin later. "
            "Names as in `/status`."
        ),
    ] = None
    kinds: Annotated[
        str,
        Meta(
            pattern=f"^({_ANY_KIND}(,{_ANY_KIND})*)?{_END}",
            description="Only events of these kinds, separated by commas. The first event, `reset` "
            "and `stopping` always come.",
        ),
    ] = ""
    samples: Annotated[
        bool,
        Meta(
            description="With `true`, also an event `sample` each second, without an id: the "
            "current figures."
        ),
    ] = False


class HistoryParameters(Struct, frozen=True):
    seconds: Annotated[
        int, Meta(ge=1, le=SECONDS, description="The number of seconds before now.")
    ] = SECONDS
    run: Annotated[
        Run | None,
        Meta(description="Only the ranks of this run, by its name in `/status`."),
    ] = None
    points: Annotated[int, Meta(ge=1, le=SECONDS, description="The most values in a column.")] = (
        SECONDS
    )


class InvalidError(Exception):
    """A parameter is invalid; the message names it."""


P = TypeVar("P", bound=Struct)


def parsed(query: bytes, type: type[P]) -> P:
    """The parameters of a query string; of one that is repeated, the last. Raises InvalidError."""
    try:
        given = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST)
        return msgspec.convert(dict(given), type, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidError(f"invalid parameter: {error}") from None
