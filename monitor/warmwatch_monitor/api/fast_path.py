"""Fast path that bypasses FastAPI, for the answers that thousands of clients request.

Only simple, valid requests take this path, with the answers of FastAPI's routes. Those routes
remain the documented ones, and refuse invalid requests with their messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from warmwatch_monitor.api.answers import Answers
from warmwatch_monitor.api.cached import Body, json_body
from warmwatch_monitor.api.events import Events
from warmwatch_monitor.api.responses import RETRY, status_of
from warmwatch_monitor.api.waiters import GoneError, StoppingError
from warmwatch_monitor.errors import UnknownRunError
from warmwatch_monitor.model.budgets import LONGEST_RUN
from warmwatch_monitor.status.goals import GOALS, LONGEST_WAIT_SECONDS, USUAL_WAIT_SECONDS

_PARAMETERS = frozenset(("run", "wait", "timeout"))


class FastPath:
    """Answers simple requests of ``/metrics`` and ``/status``; ``inner`` handles the rest."""

    def __init__(self, inner: ASGIApp, answers: Answers, events: Events) -> None:
        self._inner, self._answers, self._events = inner, answers, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body: Body | None = None
        if scope["type"] == "http" and scope["method"] == "GET":
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
            await self._inner(scope, receive, send)
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
        return await answers.wait(goal, run, timeout, partial(gone, receive), peer)


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


async def gone(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
