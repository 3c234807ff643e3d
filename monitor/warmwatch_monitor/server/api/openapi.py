"""The OpenAPI document: what ``/docs`` and ``/openapi.json`` say about the routes of ``app.py``.

The page at ``/docs`` is this document as plain HTML (``openapi.html``), without external resources:
a daemon often runs where no browser reaches the internet, and the usual pages load their scripts
from there. It needs no script.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from warmwatch_monitor.output.html import template
from warmwatch_monitor.server.api.answers import (
    EventsParameters,
    HistoryParameters,
    NoParameters,
    StatusParameters,
)
from warmwatch_monitor.status.schema.events import (
    CHANGES,
    Event,
    ResetEvent,
    SampleEvent,
    StoppingEvent,
)
from warmwatch_monitor.status.schema.json_schema import definitions
from warmwatch_monitor.status.schema.status import STATUS_DESCRIPTION, Problem, Status

# The data of each event. `reset` also has the keys of `/status`.
EVENTS: Mapping[str, type[Status | ResetEvent | Event]] = {
    "snapshot": Status,
    "reset": ResetEvent,
    **{item.kind: item for item in CHANGES},
    SampleEvent.kind: SampleEvent,
    StoppingEvent.kind: StoppingEvent,
}

EVENTS_DESCRIPTION = (
    "Changes as they happen: server-sent events, for a browser's `EventSource`. "
    "The data of each is one JSON object. The first event is a `snapshot`, all of `/status`, so no "
    "other request is needed. Each event has an `id`: a client that reconnects with the last one "
    "as `Last-Event-ID` misses nothing of the last 8192 events (or 8 MiB), or gets a `reset`. A "
    "comment comes every 15 s. A connection ends after an hour, when the daemon does (the last "
    "event is then `stopping`), or if it is read too slowly: reconnect with the last id. With "
    "more than 1000 clients, the one that is connected longest has to reconnect."
)
EVENTS_EXAMPLE = (
    "event: state\n"
    "id: 5f3a9c01-17\n"
    'data: {"at":1763679040.2,"run":"gpt2","summary":"gpt2: warm since step 4 ...","rank":0,'
    '"state":"warm","before":"warming","since":1763679040.1}\n\n'
)

HISTORY_DESCRIPTION = (
    "The last hour, second by second, in columns. `at` is the end of each value in seconds since "
    "the epoch, and each column has one value for each of `at`. `seconds` is the time that a value "
    "covers: 1, unless `points` limits their number; then values are means, and `steps` is the "
    "last. Of a rank: `steps` in total; `step_seconds`, the mean of the clean steps since the "
    "value before, of the last ones if none ended since; `compile_seconds` within a second; "
    "`states`, `phases` and `pauses` (`evaluation`, `saving`) as `[at, name]` of their begin, to "
    "the second whatever `points` is, with null for none or unknown; `recompiles` as "
    "`compile.last` of `/status` has them, with `at`, the time of their end. Of a GPU: "
    "`utilization_ratio`, `power_watts`, `memory_used_bytes`. Unknown values are null; a second "
    "without a poll has states and GPU values of the next one, if that came within 2 s. The daemon "
    "holds 256 ranks and 64 GPUs in memory, from its start on."
)
HISTORY_EXAMPLE: Mapping[str, object] = {
    "at": [1763679040.2, 1763679041.2],
    "seconds": 1,
    "ranks": [
        {
            "run": "gpt2",
            "rank": 0,
            "steps": [2, 29],
            "step_seconds": [0.036, 0.036],
            "compile_seconds": [0.8, 0.0],
            "states": [[1763679040.2, "compiling"], [1763679041.2, "warm"]],
            "phases": [[1763679040.2, "inductor"], [1763679041.2, None]],
            "pauses": [[1763679040.2, None]],
            "recompiles": [],
        }
    ],
    "gpus": [
        {
            "uuid": "gpu-71d7c0de",
            "index": 0,
            "power_limit_watts": 700.0,
            "utilization_ratio": [0.0, 0.98],
            "power_watts": [120.5, 691.0],
            "memory_used_bytes": [77e9, 77e9],
        }
    ],
}


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


Node = Mapping[str, Any]


def page(document: Node) -> str:
    """The whole page for an OpenAPI document."""
    return template(__package__, "openapi.html").render(
        document=document,
        fields=partial(_fields, document),
        resolved=partial(_resolved, document),
        example=partial(json.dumps, indent=2),
    )


def _fields(
    document: Node, schema: Node, prefix: str = "", above: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    """Each described field of a schema by its path; references are followed."""
    if (reference := schema.get("$ref", "")) in above:
        return []
    above = (*above, reference) if reference else above
    result = []
    for name, field in _resolved(document, schema).get("properties", {}).items():
        ways = [field, *field.get("anyOf", ())]
        whole = [_resolved(document, way) for way in ways]
        texts = [way["description"] for way in (*ways, *whole) if way.get("description")]
        if texts:  # its own description, or else that of its reference
            result.append((prefix + name, texts[0]))
        for value, resolved in zip(ways, whole, strict=True):
            result += _fields(document, value, f"{prefix}{name}.", above)
            result += _fields(document, resolved.get("items", {}), f"{prefix}{name}[].", above)
    return result


def _resolved(document: Node, schema: Node) -> Node:
    """The schema itself, or the one that it refers to."""
    value: Any = schema
    if reference := schema.get("$ref"):
        value = document
        for name in reference.removeprefix("#/").split("/"):
            value = value[name]
    return dict(value)
