"""JSON Schema of documents, made from their types. Pure."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from warmwatch_monitor.status.schema.events import CHANGES, ResetEvent, SampleEvent
from warmwatch_monitor.status.schema.status import Status

_BOUNDS = ("exclusiveMinimum", "exclusiveMaximum")  # of what a client accepts, not of what is sent


def definitions(*types: Any, ref_template: str) -> dict[str, dict[str, Any]]:
    """The schema of each type, and of every type that it refers to, by name.

    A default is for answers of older daemons. This release sends every key, except those that a
    type lets be unset.
    """
    _, found = msgspec.json.schema_components(types, ref_template=ref_template)
    for one in found.values():
        keys = one.get("properties", {})
        always = {name for name, key in keys.items() if "default" in key}
        if keys:
            one["required"] = [name for name in keys if name in {*one["required"], *always}]
        _simplify(one)
    return found


def schema_file() -> str:
    """The content of ``status.schema.json`` in this folder: ``/status``, and each event's data.

    One line for each key, so that a diff shows which keys changed.
    """
    types = (Status, ResetEvent, *CHANGES, SampleEvent)
    known = definitions(*types, ref_template="#/$defs/{name}")
    named = ",\n".join(f"{json.dumps(name)}: {_by_line(one)}" for name, one in known.items())
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return f'{{"$schema": "{dialect}",\n"$ref": "#/$defs/Status",\n"$defs": {{\n{named}\n}}}}\n'


def _by_line(schema: dict[str, Any]) -> str:
    keys = schema.get("properties")
    if keys is None:
        return json.dumps(schema)
    head = json.dumps({name: one for name, one in schema.items() if name != "properties"})
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(one)}" for name, one in keys.items())
    return f'{head[:-1]}, "properties": {{\n{lines}}}}}'


def _simplify(schema: Any) -> None:
    """Remove what is for clients: defaults, and bounds of numbers."""
    if isinstance(schema, list):
        for one in schema:
            _simplify(one)
    elif isinstance(schema, dict):
        for name, one in list(schema.items()):
            if name == "properties":
                for key in one.values():
                    key.pop("default", None)
                    _simplify(key)
            elif name in _BOUNDS:
                del schema[name]
            else:
                _simplify(one)
