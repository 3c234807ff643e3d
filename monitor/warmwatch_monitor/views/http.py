"""The HTTP interface: formats the latest Snapshot, and waits for a later one where asked to.

Owns routes, query parameters and HTTP statuses. Every handler runs on the event loop and only
reads the latest Snapshot, so no answer waits for a source, a GPU or another request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from html import escape
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse

from warmwatch.verdict import State
from warmwatch_monitor.errors import UnknownRunError
from warmwatch_monitor.export import series
from warmwatch_monitor.export.answer import reached, status
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.views.schema import STATUS_DESCRIPTION, Problem, Status

LOOK_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 3600.0
_STATES = ", ".join(state.value for state in State)

Latest = Callable[[], Snapshot]

_REFUSALS: dict[int | str, dict[str, Any]] = {
    404: {"description": "No run of that name.", "model": Problem},
    422: {"description": "A parameter that makes no sense.", "model": Problem},
}


def create_app(latest: Latest, version: str) -> FastAPI:
    """The application over ``latest``, which returns the newest Snapshot at once."""
    app = FastAPI(
        title="Warmwatch",
        version=version,
        summary="Is torch.compile still at work, or is this the real speed?",
    )
    _add_refusals(app)
    _add_status(app, latest)
    _add_metrics(app, latest, version)
    _add_probes(app, latest)
    _add_landing(app, version)
    return app


def _add_status(app: FastAPI, latest: Latest) -> None:
    # the model is for /docs: what is answered is a Response, which FastAPI leaves as it is
    @app.get("/status", description=STATUS_DESCRIPTION, response_model=Status, responses=_REFUSALS)
    async def get_status(
        run: Annotated[str | None, Query(description="One run alone, by its name.")] = None,
        wait: Annotated[
            State | None, Query(description="Answer when this state is reached.")
        ] = None,
        timeout: Annotated[
            float,
            Query(
                gt=0,
                le=LONGEST_WAIT_SECONDS,
                description="With `wait`: answer after this many seconds at the latest.",
            ),
        ] = 300.0,
    ) -> Response:
        if wait is not None:
            await _wait(latest, wait, run, timeout)
        return _json(status(latest(), run))


async def _wait(latest: Latest, wanted: State, run: str | None, timeout: float) -> None:
    """Return once ``wanted`` is reached, or after ``timeout`` seconds."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout
    while not reached(latest(), wanted.value, run):
        left = deadline - clock()
        if left <= 0:
            return
        await asyncio.sleep(min(LOOK_SECONDS, left))


def _add_metrics(app: FastAPI, latest: Latest, version: str) -> None:
    @app.get(
        "/metrics",
        description="Prometheus text; OpenMetrics where the Accept header asks for it.",
        response_class=PlainTextResponse,
        responses={422: _REFUSALS[422]},
    )
    async def get_metrics(accept: Annotated[str | None, Header()] = None) -> Response:
        body, content_type = series.render(latest(), accept, version=version)
        return Response(body, headers={"content-type": content_type})


def _add_probes(app: FastAPI, latest: Latest) -> None:
    @app.get("/-/healthy", response_class=PlainTextResponse)
    async def healthy() -> Response:
        """The daemon answers."""
        return PlainTextResponse("healthy\n")

    @app.get(
        "/-/ready",
        response_class=PlainTextResponse,
        responses={503: {"description": "The records have not been read yet."}},
    )
    async def ready() -> Response:
        """The records have been read at least once."""
        if any(health.last_success for health in latest().sources if health.source == "records"):
            return PlainTextResponse("ready\n")
        return PlainTextResponse("the records have not been read yet\n", status_code=503)


_ENDPOINTS: Mapping[str, str] = {
    "/status": "the whole answer, JSON",
    "/metrics": "for Prometheus",
    "/docs": "the interface",
    "/-/healthy": "the daemon answers",
    "/-/ready": "the records have been read",
}


def _add_landing(app: FastAPI, version: str) -> None:
    links = "".join(
        f'<li><a href="{path}">{path}</a>: {escape(what)}</li>' for path, what in _ENDPOINTS.items()
    )
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Warmwatch</title>'
        f"<h1>Warmwatch {escape(version)}</h1><ul>{links}</ul></html>"
    )

    @app.get("/", include_in_schema=False)
    async def landing() -> Response:
        return HTMLResponse(page)


def _add_refusals(app: FastAPI) -> None:
    @app.exception_handler(UnknownRunError)
    async def unknown_run(_request: Request, error: UnknownRunError) -> Response:
        return _json({"detail": str(error)}, status_code=404)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        sentences = [_sentence(one["loc"][-1], one.get("input")) for one in error.errors()]
        return _json({"detail": "; ".join(sentences)}, status_code=422)


def _sentence(parameter: object, given: object) -> str:
    if parameter == "wait":
        return f"wait={given!s} is no state; the states are {_STATES}"
    if parameter == "timeout":
        longest = f"{LONGEST_WAIT_SECONDS:.0f}"
        return f"timeout={given!s} is not a number of seconds above 0 and up to {longest}"
    return f"{parameter!s}={given!s} cannot be used"


def _json(body: object, status_code: int = 200) -> Response:
    # ASCII: a run's name may hold bytes that are not UTF-8, which JSON can escape but not encode
    text = json.dumps(body, allow_nan=False, separators=(",", ":"))
    return Response(text, status_code=status_code, media_type="application/json")
