"""The routes of the API: each one formats the latest Snapshot, or waits for a later one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from warmwatch_monitor.api import page_files, reference
from warmwatch_monitor.api.answers import Answers, health, readiness
from warmwatch_monitor.api.cached import json_body_of_many
from warmwatch_monitor.api.event_log import Wanted
from warmwatch_monitor.api.event_schema import (
    EVENTS_DESCRIPTION,
    EVENTS_RUN_DESCRIPTION,
    HISTORY_DESCRIPTION,
    HISTORY_EXAMPLE,
    KINDS_DESCRIPTION,
    KINDS_PATTERN,
    LAST_ID_DESCRIPTION,
    SAMPLES_DESCRIPTION,
)
from warmwatch_monitor.api.event_stream import EventStream
from warmwatch_monitor.api.events import CrowdedError, Events
from warmwatch_monitor.api.last_hour import SECONDS, History
from warmwatch_monitor.api.last_hour_columns import columns
from warmwatch_monitor.api.responses import (
    INVALID,
    add_refusals,
    content,
    documented,
    events_content,
    json_response,
    problem,
    sent,
)
from warmwatch_monitor.api.waiters import GoneError, disconnected
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.model.budgets import LONGEST_RUN
from warmwatch_monitor.status.goals import GOALS, LONGEST_WAIT_SECONDS, USUAL_WAIT_SECONDS
from warmwatch_monitor.status.schema.status import STATUS_DESCRIPTION, Status


def add_metrics(app: FastAPI, answers: Answers) -> None:
    @app.get(
        "/metrics",
        description="All metrics, in the Prometheus text format or in OpenMetrics.",
        response_class=PlainTextResponse,
        response_description="Prometheus text, or OpenMetrics if the Accept header requests it.",
        responses={422: INVALID},
    )
    async def get_metrics(
        request: Request,
        accept: Annotated[
            str | None,
            Header(
                description="`application/openmetrics-text` requests OpenMetrics; any other value "
                "Prometheus text, as without the header."
            ),
        ] = None,
    ) -> Response:
        return sent(answers.of(_owner_uid(request)).metrics(accept), request)


def add_probes(app: FastAPI, latest: Callable[[], Snapshot]) -> None:
    @app.get(
        "/-/healthy",
        response_class=PlainTextResponse,
        response_description="The daemon is healthy.",
        responses={503: {"description": "The daemon publishes no new data: restart it."}},
    )
    async def healthy() -> Response:
        """The daemon answers, and its data is current."""
        status, text = health(latest())
        return PlainTextResponse(text, status)

    @app.get(
        "/-/ready",
        response_class=PlainTextResponse,
        response_description="The daemon is ready.",
        responses={
            503: {
                "description": "The records were not read yet, cannot be read now, or are not "
                "published."
            }
        },
    )
    async def ready() -> Response:
        """The records have been read, can be read now, and all that is read is published."""
        status, text = readiness(latest())
        return PlainTextResponse(text, status)


def add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def landing(request: Request) -> Response:
        return _page("index.html", request)

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str, request: Request) -> Response:
        return _page(name, request)


def _page(name: str, request: Request) -> Response:
    body = page_files.file(name)
    if body is None:
        return PlainTextResponse("there is no such file of the page\n", status_code=404)
    content, headers = body.encoded(request.headers.get("accept-encoding", ""))
    return Response(content, headers={**headers, **page_files.HEADERS})


def add_reference(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(reference.page(app.openapi()))


_WAIT_DESCRIPTION = (
    "Answer when this state is reached, when the requested runs have ended, or at the timeout. The "
    "status code is then always 200, and the key `reached` is true if the state was reached. "
    "`warm`: every living rank is warm, or the runs finished after they had been warm. `settled`: "
    "so it is, and no living rank's speed still changes. `ended`: no "
    "rank lives. A run that had ended before the request counts for the ends: `ended`, "
    "`finished`, `failed` and `lost`. For other states it counts if it began within the last 10 s "
    "before the request; else the daemon waits for a new run."
)

_RUN_DESCRIPTION = (
    "Only the run of this name. `NAME@USER` is that user's run. A name without a user is the run "
    "that is shown under it, or else the runs of all users with that name."
)

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The status. With `wait`, see `reached`.",
        **content(Status),
    },
    404: problem(
        "No run of that name. With `wait` too, this answer comes immediately if the records can be "
        "read. A run that disappears during a wait may come back: the wait goes on until the "
        "timeout."
    ),
    422: INVALID,
    503: problem(
        "No run of that name so far, and not all records have been read yet. Or, with `wait`, the "
        "daemon is stopping: send the request again."
    ),
}


def add_status(app: FastAPI, answers: Answers) -> None:
    @app.get("/status", description=STATUS_DESCRIPTION, responses=_RESPONSES)
    async def get_status(
        request: Request,
        run: Annotated[
            str | None, Query(description=_RUN_DESCRIPTION, max_length=LONGEST_RUN)
        ] = None,
        wait: Annotated[
            str | None,
            Query(
                description=_WAIT_DESCRIPTION,
                pattern=f"^({'|'.join(GOALS)})$",
                json_schema_extra={"enum": list(GOALS)},
            ),
        ] = None,
        timeout: Annotated[
            float,
            Query(
                gt=0,
                le=LONGEST_WAIT_SECONDS,
                description="With `wait`: answer after this many seconds at the latest.",
            ),
        ] = USUAL_WAIT_SECONDS,
    ) -> Response:
        own = answers.of(_owner_uid(request))
        if wait is None:
            return sent(own.status(run, _peer(request)), request)
        try:
            left = partial(disconnected, request.receive)
            body = await own.wait(wait, run, timeout, left, _peer(request))
        except GoneError:
            return Response()  # the client is gone
        return sent(body, request)


def _owner_uid(request: Request) -> int | None:
    """The user whose runs only the client may read, from the server; ``None``: all runs."""
    return getattr(request.state, "owner_uid", None)


def _peer(request: Request) -> str:
    """A name for the client, from the server; empty if there is none."""
    return str(getattr(request.state, "peer", ""))


def add_events(app: FastAPI, events: Events) -> None:
    @app.get(
        "/events",
        description=EVENTS_DESCRIPTION,
        response_class=EventStream,
        response_description="Events, until the client disconnects.",
        responses={
            200: {"content": {"text/event-stream": events_content()}},
            422: INVALID,
            503: problem("The limit of clients is reached."),
        },
    )
    async def get_events(
        run: Annotated[
            str | None, Query(description=EVENTS_RUN_DESCRIPTION, max_length=LONGEST_RUN)
        ] = None,
        kinds: Annotated[str, Query(description=KINDS_DESCRIPTION, pattern=KINDS_PATTERN)] = "",
        samples: Annotated[bool, Query(description=SAMPLES_DESCRIPTION)] = False,
        peer: Annotated[str, Depends(_peer)] = "",
        last_event_id: Annotated[str | None, Header(description=LAST_ID_DESCRIPTION)] = None,
    ) -> Response:
        try:
            events.refuse_crowd(peer)
        except CrowdedError as error:
            return json_response({"detail": str(error)}, status_code=503)
        wanted = Wanted(run, frozenset(filter(None, kinds.split(","))))
        return EventStream(events.listen(wanted, last_event_id, samples=samples, peer=peer))


def add_history(app: FastAPI, history: History) -> None:
    one_at_a_time = asyncio.Lock()

    @app.get(
        "/history",
        description=HISTORY_DESCRIPTION,
        response_description="The columns.",
        responses={
            200: {"content": {"application/json": {"example": HISTORY_EXAMPLE}}},
            422: INVALID,
        },
    )
    async def get_history(
        request: Request,
        seconds: Annotated[
            int, Query(ge=1, le=SECONDS, description="The number of seconds before now.")
        ] = SECONDS,
        run: Annotated[
            str | None,
            Query(
                description="Only the ranks of this run, by its name in `/status`.",
                max_length=LONGEST_RUN,
            ),
        ] = None,
        points: Annotated[
            int, Query(ge=1, le=SECONDS, description="The most values in a column.")
        ] = SECONDS,
    ) -> Response:
        accept = request.headers.get("accept-encoding", "")

        def make() -> tuple[bytes, dict[str, str]]:
            found = columns(history, seconds=seconds, run=run, points=points)
            return json_body_of_many(found).encoded(accept)

        # in a thread: an hour of many ranks takes time, and must not delay other requests
        async with one_at_a_time:
            content, headers = await asyncio.to_thread(make)
        return Response(content, headers=headers)


def routes(
    latest: Callable[[], Snapshot],
    version: str,
    answers: Answers,
    events: Events,
    history: History,
) -> FastAPI:
    """All routes, documented; :func:`fast_path.create_app` wires them."""
    app = FastAPI(
        title="Warmwatch",
        version=version,
        summary="Is torch.compile still compiling, or is this the real speed?",
        docs_url=None,
        redoc_url=None,
    )
    app.openapi = cache(partial(documented, app))  # type: ignore[method-assign]
    add_refusals(app)
    add_status(app, answers)
    add_events(app, events)
    add_history(app, history)
    add_metrics(app, answers)
    add_probes(app, latest)
    add_page(app)
    add_reference(app)
    return app
