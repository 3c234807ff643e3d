"""Bodies and refusals as HTTP responses: an unknown run, an invalid parameter, not yet known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi

from warmwatch_monitor.api.answers import RETRY, status_of
from warmwatch_monitor.api.cached import Body, json_body
from warmwatch_monitor.api.event_schema import EVENTS, EVENTS_EXAMPLE
from warmwatch_monitor.api.waiters import StoppingError
from warmwatch_monitor.errors import UnknownRunError
from warmwatch_monitor.status.goals import GOALS, LONGEST_WAIT_SECONDS
from warmwatch_monitor.status.schema.events import ResetEvent
from warmwatch_monitor.status.schema.json_schema import definitions
from warmwatch_monitor.status.schema.status import Problem, Status


def sent(body: Body, request: Request) -> Response:
    """The response, compressed if that is worth it and the client accepts it."""
    content, headers = body.encoded(request.headers.get("accept-encoding", ""))
    return Response(content, headers=headers)


def json_response(
    body: object, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    made = json_body(body)
    return Response(
        made.plain, status_code=status_code, media_type=made.kind, headers=dict(headers or {})
    )


_STATES = ", ".join(GOALS)
_SCHEMAS = "#/components/schemas/{name}"


def documented(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of ``app``, with the schemas that :func:`content` refers to."""
    document = get_openapi(
        title=app.title, version=app.version, summary=app.summary, routes=app.routes
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(definitions(Status, Problem, *EVENTS.values(), ref_template=_SCHEMAS))
    return document


def content(type: type[Status] | type[Problem]) -> dict[str, Any]:
    """The OpenAPI description of a response of this type."""
    schema = {"$ref": _SCHEMAS.format(name=type.__name__)}
    return {"content": {"application/json": {"schema": schema}}}


def events_content() -> dict[str, Any]:
    """The OpenAPI description of a stream's events."""
    found: list[dict[str, Any]] = []
    for kind, type in EVENTS.items():
        of: list[Any] = [Status, type] if type is ResetEvent else [type]
        references = [{"$ref": _SCHEMAS.format(name=one.__name__)} for one in of]
        found.append({"title": kind, "allOf": references})
    return {"schema": {"oneOf": found}, "example": EVENTS_EXAMPLE}


def problem(description: str) -> dict[str, Any]:
    """The OpenAPI description of an error response."""
    return {"description": description, **content(Problem)}


INVALID = problem("A parameter is invalid.")


_NO_PATH = (
    "no such path; the paths are /, /status, /metrics, /events, /history, /-/healthy, /-/ready and "
    "/docs, which describes them"
)


def add_refusals(app: FastAPI) -> None:
    @app.exception_handler(404)
    async def unknown_path(_request: Request, _error: Exception) -> Response:
        return json_response({"detail": _NO_PATH}, 404)

    @app.exception_handler(UnknownRunError)
    async def unknown_run(_request: Request, error: UnknownRunError) -> Response:
        return json_response({"detail": str(error)}, status_of(error), RETRY[status_of(error)])

    @app.exception_handler(StoppingError)
    async def stopping(_request: Request, error: StoppingError) -> Response:
        return json_response({"detail": str(error)}, 503, RETRY[503])

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        sentences = [_sentence(one["loc"][-1], one.get("input")) for one in error.errors()]
        return json_response({"detail": "; ".join(sentences)}, status_code=422)


def _sentence(parameter: object, given: object) -> str:
    if parameter == "wait":
        return f"wait={given!s} is no state; the states are {_STATES}"
    if parameter == "timeout":
        longest = f"{LONGEST_WAIT_SECONDS:.0f}"
        return f"timeout={given!s} is not a number of seconds above 0 and up to {longest}"
    return f"{parameter!s}={given!s} cannot be used"
