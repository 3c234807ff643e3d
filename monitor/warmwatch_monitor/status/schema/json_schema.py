"""JSON Schema of documents, made from their types. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from warmwatch_monitor.figures.declared import field_texts
from warmwatch_monitor.status.schema.events import CHANGES, ResetEvent, SampleEvent
from warmwatch_monitor.status.schema.status import Status

# of what a client accepts, not of what is sent
_BOUNDS = ("exclusiveMinimum", "exclusiveMaximum", "minimum", "maximum")


def definitions(*types: Any, ref_template: str) -> dict[str, dict[str, Any]]:
    """The schema of each type, and of every type that it refers to, by name.

    Every key is sent, also one with a default, except those that a type lets be unset.
    """
    _, values = msgspec.json.schema_components(types, ref_template=ref_template)
    described = {
        struct.__name__: struct for struct in _structs(msgspec.inspect.multi_type_info(types))
    }
    for name, value in values.items():
        if "description" in value:
            value["description"] = " ".join(value["description"].split())
        keys = value.get("properties", {})
        if struct := described.get(name):
            texts = field_texts(struct)
            names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
            docs = {key: texts[field] for field, key in names if field in texts}
            keys.update({key: {"description": docs[key], **keys[key]} for key in docs})
        always = {name for name, key in keys.items() if "default" in key}
        if keys:
            value["required"] = [name for name in keys if name in {*value["required"], *always}]
        _simplify(value)
    return values


def _structs(info: Any) -> Iterator[type[msgspec.Struct]]:
    """Every Struct in a description of :mod:`msgspec.inspect`; a type may come more than once."""
    if isinstance(info, tuple):
        for value in info:
            yield from _structs(value)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        if isinstance(info, msgspec.inspect.StructType):
            yield info.cls
        for name in info.__struct_fields__:
            yield from _structs(getattr(info, name))


def schema_file() -> str:
    """The content of ``status.schema.json`` in this folder: ``/status``, and each event's data."""
    return schema_text(Status, ResetEvent, *CHANGES, SampleEvent)


def schema_text(document: type, *others: type) -> str:
    """The JSON Schema of ``document``, which also defines ``others``.

    One line for each key, so that a diff shows which keys changed.
    """
    groups = definitions(document, *others, ref_template="#/$defs/{name}")
    named = ",\n".join(f"{json.dumps(name)}: {_by_line(values)}" for name, values in groups.items())
    dialect, root = "https://json-schema.org/draft/2020-12/schema", f"#/$defs/{document.__name__}"
    return f'{{"$schema": "{dialect}",\n"$ref": "{root}",\n"$defs": {{\n{named}\n}}}}\n'


def _by_line(schema: dict[str, Any]) -> str:
    keys = schema.get("properties")
    if keys is None:
        return json.dumps(schema)
    head = json.dumps({name: value for name, value in schema.items() if name != "properties"})
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in keys.items())
    return f'{head[:-1]}, "properties": {{\n{lines}}}}}'


def _simplify(schema: Any) -> None:
    """Remove what is for clients: defaults, and bounds of numbers."""
    if isinstance(schema, list):
        for value in schema:
            _simplify(value)
    elif isinstance(schema, dict):
        for name, value in list(schema.items()):
            if name == "properties":
                for key in value.values():
                    key.pop("default", None)
                    _simplify(key)
            elif name in _BOUNDS:
                del schema[name]
            else:
                _simplify(value)
