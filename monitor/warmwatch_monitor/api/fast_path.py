"""The application: a fast path for simple requests, and FastAPI's routes for the rest.

Only simple, valid requests of ``/metrics``, ``/status`` and the probes take the fast path, with the
answers of FastAPI's routes. Those routes remain the documented ones, and refuse invalid requests
with their messages. FastAPI is 18 MB of a daemon that only Prometheus and commands query, so the
first request of anything else imports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from warmwatch_monitor.api.answers import (
    RETRY,
    Answers,
    OnRequest,
    health,
    ignore,
    readiness,
    status_of,
)
from warmwatch_monitor.api.cached import Body, json_body
from warmwatch_monitor.api.event_log import Recent
from warmwatch_monitor.api.events import Events
from warmwatch_monitor.api.last_hour import History
from warmwatch_monitor.api.last_hour_columns import sample
from warmwatch_monitor.api.waiters import GoneError, StoppingError, disconnected
from warmwatch_monitor.errors import UnknownRunError
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.model.budgets import LONGEST_RUN
from warmwatch_monitor.status.goals import GOALS, LONGEST_WAIT_SECONDS, USUAL_WAIT_SECONDS

_PARAMETERS = frozenset(("run", "wait", "timeout"))


_PROBES = {"/-/healthy": health, "/-/ready": readiness}
_TEXT = {"content-type": "text/plain; charset=utf-8"}


def create_app(
    latest: Callable[[], Snapshot],
    version: str,
    recent: Recent | None = None,
    history: History | None = None,
    on_request: OnRequest = ignore,
) -> FastPath:
    """The application over ``latest``, which returns the newest Snapshot immediately.

    ``recent`` has the changes, ``history`` the past of the same Snapshots. ``on_request`` is called
    with the name of each requested run, and a name for the client.
    """
    answers = Answers(latest, version, on_request)
    events = Events(latest, recent or Recent(), sample)
    past = history or History()

    def make_routes() -> ASGIApp:
        from warmwatch_monitor.api.routes import routes

        return routes(latest, version, answers, events, past)

    return FastPath(make_routes, latest, answers, events)


class FastPath:
    """Answers simple requests; the application that ``make_inner`` returns handles the rest."""

    def __init__(
        self,
        make_inner: Callable[[], ASGIApp],
        latest: Callable[[], Snapshot],
        answers: Answers,
        events: Events,
    ) -> None:
        self._make_inner, self._latest = make_inner, latest
        self._answers, self._events = answers, events
        self._inner: ASGIApp | None = None
        self._making = asyncio.Lock()

    async def _made(self) -> ASGIApp:
        """The inner application. A thread imports it, so that other requests are answered."""
        async with self._making:
            if self._inner is None:
                self._inner = await asyncio.to_thread(self._make_inner)
        return self._inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body: Body | None = None
        if scope["type"] == "http" and scope["method"] == "GET":
            if (probe := _PROBES.get(scope["path"])) is not None:
                status, text = probe(self._latest())
                await _send(status, text.encode(), _TEXT, send)
                return
            try:
                body = await self._body(scope, receive)
            except UnknownRunError as error:
                await _send_error(error, status_of(error), send)
                return
            except StoppingError as error:
                await _send_error(error, 503, send)
                return
            except GoneError:
                return
        if body is None:
            await (self._inner or await self._made())(scope, receive, send)
            return
        content, headers = body.encoded(_header(scope, b"accept-encoding") or "")
        await _send(200, content, headers, send)

    def leave(self) -> None:
        """Answer all waiting clients and end all listeners, because the daemon ends."""
        self._answers.leave()
        self._events.leave()

    async def _body(self, scope: Scope, receive: Receive) -> Body | None:
        """The answer; ``None`` if the request is not simple. Raises UnknownRunError."""
        answers = self._answers.of(scope.get("state", {}).get("owner_uid"))
        if scope["path"] == "/metrics":
            return answers.metrics(_header(scope, b"accept"))
        if scope["path"] != "/status":
            return None
        requested = plain_query(scope["query_string"])
        if requested is None:
            return None
        run, goal, timeout = requested
        peer = str(scope.get("state", {}).get("peer", ""))
        if goal is None:
            return answers.status(run, peer)
        return await answers.wait(goal, run, timeout, partial(disconnected, receive), peer)


def plain_query(query: bytes) -> tuple[str | None, str | None, float] | None:
    """Run, goal and timeout, each valid and given at most once; else ``None``."""
    if not query:
        return None, None, USUAL_WAIT_SECONDS
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=3)
        given = dict(pairs)
        timeout = float(given.get("timeout", USUAL_WAIT_SECONDS))
    except ValueError:
        return None
    goal = given.get("wait")
    once = len(given) == len(pairs) and given.keys() <= _PARAMETERS
    short = len(given.get("run", "")) <= LONGEST_RUN
    right = short and 0 < timeout <= LONGEST_WAIT_SECONDS and (goal is None or goal in GOALS)
    return (given.get("run"), goal, timeout) if once and right else None


async def _send_error(error: Exception, status: int, send: Send) -> None:
    """Send an error, as FastAPI's routes do."""
    problem = json_body({"detail": str(error)})
    await _send(status, problem.plain, {"content-type": problem.kind, **RETRY[status]}, send)


async def _send(status: int, content: bytes, headers: Mapping[str, str], send: Send) -> None:
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    lines.append((b"content-length", b"%d" % len(content)))
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": content})


def _header(scope: Scope, wanted: bytes) -> str | None:
    """The value of a header that is sent exactly once."""
    values = [value for name, value in scope["headers"] if name == wanted]
    return b", ".join(values).decode("latin-1") if values else None
