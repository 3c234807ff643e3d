"""The OpenAPI document: what ``/docs`` and ``/openapi.json`` say about the routes of ``app.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from warmwatch_monitor.server.api.event_schema import (
    EVENTS,
    EVENTS_DESCRIPTION,
    EVENTS_EXAMPLE,
    HISTORY_DESCRIPTION,
    HISTORY_EXAMPLE,
)
from warmwatch_monitor.server.api.parameters import (
    EventsParameters,
    HistoryParameters,
    NoParameters,
    StatusParameters,
)
from warmwatch_monitor.status.schema.events import ResetEvent
from warmwatch_monitor.status.schema.json_schema import definitions
from warmwatch_monitor.status.schema.status import STATUS_DESCRIPTION, Problem, Status

_SCHEMAS = "#/components/schemas/{name}"


def document(version: str) -> dict[str, Any]:
    """The whole document."""
    schemas = definitions(Status, Problem, *EVENTS.values(), ref_template=_SCHEMAS)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Warmwatch",
            "summary": "Is torch.compile still compiling, or is this the real speed?",
            "version": version,
        },
        "paths": {path: {"get": operation} for path, operation in _operations().items()},
        "components": {"schemas": schemas},
    }


def _operations() -> dict[str, dict[str, Any]]:
    return {
        "/status": _operation(
            STATUS_DESCRIPTION,
            StatusParameters,
            {
                "200": _json("The status. With `wait`, see `reached`.", Status),
                "404": _json(
                    "No run of that name. With `wait` too, this answer comes immediately if the "
                    "records can be read. A run that disappears during a wait may come back: the "
                    "wait goes on until the timeout.",
                    Problem,
                ),
                "422": _INVALID,
                "503": _json(
                    "No run of that name so far, and not all records have been read yet. Or, with "
                    "`wait`, the daemon is stopping: send the request again.",
                    Problem,
                ),
            },
        ),
        "/events": _operation(
            EVENTS_DESCRIPTION,
            EventsParameters,
            {
                "200": {
                    "description": "Events, until the client disconnects.",
                    "content": {
                        "text/event-stream": {"schema": _events(), "example": EVENTS_EXAMPLE}
                    },
                },
                "422": _INVALID,
            },
            _header(
                "last-event-id",
                "The id of the last event that the client has read. Browsers send it when they "
                "reconnect.",
            ),
        ),
        "/history": _operation(
            HISTORY_DESCRIPTION,
            HistoryParameters,
            {
                "200": {
                    "description": "The columns.",
                    "content": {"application/json": {"example": HISTORY_EXAMPLE}},
                },
                "422": _INVALID,
            },
        ),
        "/metrics": _operation(
            "All metrics, in the Prometheus text format or in OpenMetrics.",
            NoParameters,
            {"200": _text("Prometheus text, or OpenMetrics if the Accept header requests it.")},
            _header(
                "accept",
                "`application/openmetrics-text` requests OpenMetrics; any other value Prometheus "
                "text, as without the header.",
            ),
        ),
        "/-/healthy": _operation(
            "The daemon answers, and its data is current.",
            NoParameters,
            {
                "200": _text("The daemon is healthy."),
                "503": _text("The daemon publishes no new data: restart it."),
            },
        ),
        "/-/ready": _operation(
            "The records have been read, can be read now, and all that is read is published.",
            NoParameters,
            {
                "200": _text("The daemon is ready."),
                "503": _text(
                    "The records were not read yet, cannot be read now, or are not published."
                ),
            },
        ),
    }


def _operation(
    description: str,
    parameters: type[Struct],
    responses: Mapping[str, Any],
    *headers: Mapping[str, Any],
) -> dict[str, Any]:
    _, values = msgspec.json.schema_components((parameters,), ref_template=_SCHEMAS)
    declared = [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": schema.pop("description"),
            "schema": schema,
        }
        for name, schema in values[parameters.__name__]["properties"].items()
    ]
    return {"description": description, "parameters": [*declared, *headers], "responses": responses}


def _header(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string"},
    }


def _json(description: str, type: type[Status] | type[Problem]) -> dict[str, Any]:
    schema = {"$ref": _SCHEMAS.format(name=type.__name__)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _text(description: str) -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {"description": description, "content": content}


_INVALID = _json("A parameter is invalid.", Problem)


def _events() -> dict[str, Any]:
    """The schema of a stream: one kind of event each."""
    groups: list[dict[str, Any]] = []
    for kind, type in EVENTS.items():
        parts: list[Any] = [Status, type] if type is ResetEvent else [type]
        references = [{"$ref": _SCHEMAS.format(name=part.__name__)} for part in parts]
        groups.append({"title": kind, "allOf": references})
    return {"oneOf": groups}
