"""The application: a route for each endpoint, which formats the latest Snapshot.

No handler takes more than a millisecond for a request of its own: an answer is made once for a
Snapshot (``cached.py``), or on a thread, where one is made at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from warmwatch_monitor.base.errors import UnknownRunError
from warmwatch_monitor.last_hour.ring import LastHour, columns
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.server.api import cached, openapi
from warmwatch_monitor.server.api.answers import (
    RETRY,
    Answers,
    EventsParameters,
    GoneError,
    HistoryParameters,
    InvalidError,
    OnRequest,
    StatusParameters,
    StoppingError,
    disconnected,
    health,
    ignore,
    parsed,
    readiness,
    status_of,
)
from warmwatch_monitor.server.api.cached import Body, json_body, json_body_of_many
from warmwatch_monitor.server.api.changes import Recent, Wanted
from warmwatch_monitor.server.api.events import Events
from warmwatch_monitor.server.api.openapi import document

_NO_PATH = (
    "no such path; the paths are /, /status, /metrics, /events, /history, /-/healthy, /-/ready and "
    "/docs, which describes them"
)
_PART = 1 << 16  # bytes sent ahead to a client that reads slowly
_MOST_PASTS = 4  # answers of /history that are cached; one of many ranks has megabytes
_STREAM_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would buffer events
}


class Api(Starlette):
    """The application over ``latest``, which returns the newest Snapshot immediately.

    ``recent`` has the changes, ``history`` the past of the same Snapshots. ``on_request`` is called
    with the name of each requested run.
    """

    def __init__(
        self,
        latest: Callable[[], Snapshot],
        version: str,
        recent: Recent | None = None,
        history: LastHour | None = None,
        on_request: OnRequest = ignore,
    ) -> None:
        self._latest, self._version, self._history = latest, version, history or LastHour()
        self._answers = Answers(latest, version, on_request)
        self._events = Events(latest, recent or Recent())
        self._on_thread = asyncio.Lock()  # one answer at a time
        self._pasts: dict[tuple[int, HistoryParameters], Body] = {}
        self._documents: dict[str, Body] = {}
        super().__init__(
            routes=[
                Route("/status", self._get_status),
                Route("/metrics", self._get_metrics),
                Route("/events", self._get_events),
                Route("/history", self._get_history),
                Route("/-/healthy", partial(self._probe, health)),
                Route("/-/ready", partial(self._probe, readiness)),
                Route("/docs", partial(self._get_document, "/docs")),
                Route("/openapi.json", partial(self._get_document, "/openapi.json")),
                Route("/", self._get_page),
                Route("/page/{name}", self._get_page),
            ],
            exception_handlers={
                404: _unknown_path,
                InvalidError: partial(_refused, 422),
                UnknownRunError: _unknown_run,
                StoppingError: partial(_refused, 503),
            },
        )

        self.router.redirect_slashes = False  # it would decode a query that is not UTF-8

    def leave(self) -> None:
        """Answer all waiting clients and end all listeners, because the daemon ends."""
        self._answers.leave()
        self._events.leave()

    async def _get_status(self, request: Request) -> Response:
        wanted = parsed(request.scope["query_string"], StatusParameters)
        if wanted.wait is None:
            return _sent(self._answers.status(wanted.run), request)
        gone = partial(disconnected, request.receive)
        try:
            body = await self._answers.wait(wanted.wait, wanted.run, wanted.timeout, gone)
        except GoneError:
            return Response()
        return _sent(body, request)

    async def _get_metrics(self, request: Request) -> Response:
        accept = ", ".join(request.headers.getlist("accept"))
        return _sent(self._answers.metrics(accept or None), request)

    async def _get_events(self, request: Request) -> Response:
        wanted = parsed(request.scope["query_string"], EventsParameters)
        headers = {"content-type": "text/event-stream", **_STREAM_HEADERS}
        if request.method == "HEAD":
            return Response(headers=headers)
        events = self._events.listen(
            Wanted(wanted.run, frozenset(filter(None, wanted.kinds.split(",")))),
            request.headers.get("last-event-id"),
            samples=wanted.samples,
        )
        return StreamingResponse(_in_parts(events), headers=headers)

    async def _get_history(self, request: Request) -> Response:
        wanted = parsed(request.scope["query_string"], HistoryParameters)
        async with self._on_thread:
            if await request.is_disconnected():
                return Response()
            key = self._history.newest, wanted
            if key not in self._pasts:
                make = partial(columns, self._history, wanted.seconds, wanted.run, wanted.points)
                body = await asyncio.to_thread(lambda: json_body_of_many(make()).compressed())
                self._pasts = {
                    **dict(list(self._pasts.items())[1 - _MOST_PASTS :]),
                    key: body,
                }
            return _sent(self._pasts[key], request)

    async def _probe(
        self, probe: Callable[[Snapshot], tuple[int, str]], _request: Request
    ) -> Response:
        status, text = probe(self._latest())
        return PlainTextResponse(text, status)

    async def _get_document(self, path: str, request: Request) -> Response:
        async with self._on_thread:
            if not self._documents:
                self._documents = await asyncio.to_thread(_documents, self._version)
        return _sent(self._documents[path], request)

    async def _get_page(self, request: Request) -> Response:
        body = cached.file(request.path_params.get("name", "index.html"))
        if body is None:
            return PlainTextResponse("there is no such file of the page\n", status_code=404)
        return _sent(body, request, cached.HEADERS)


def _documents(version: str) -> dict[str, Body]:
    described = document(version)
    page = Body(openapi.page(described).encode(), "text/html; charset=utf-8")
    return {"/docs": page.compressed(), "/openapi.json": json_body(described).compressed()}


def _sent(body: Body, request: Request, more: Mapping[str, str] | None = None) -> Response:
    """The response, compressed if that is worth it and the client accepts it."""
    content, headers = body.encoded(request.headers.get("accept-encoding", ""))
    return Response(content, headers={**headers, **(more or {})})


def _problem(status: int, error: object) -> Response:
    body = json_body({"detail": str(error)})
    headers = {"content-type": body.kind, **RETRY.get(status, {})}
    return Response(body.plain, status, headers=headers)


# Starlette would call functions that are not asynchronous on a thread.


async def _unknown_path(_request: Request, _error: Exception) -> Response:
    return _problem(404, _NO_PATH)


async def _unknown_run(_request: Request, error: Any) -> Response:
    return _problem(status_of(error), error)


async def _refused(status: int, _request: Request, error: Exception) -> Response:
    return _problem(status, error)


async def _in_parts(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        async for content in events:
            for at in range(0, len(content), _PART):
                yield content[at : at + _PART]
