"""JSON Schema of documents, made from their types. Pure."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from functools import cache
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
    described = {one.__name__: one for one in _structs(msgspec.inspect.multi_type_info(types))}
    for name, one in found.items():
        if "description" in one:
            one["description"] = " ".join(one["description"].split())
        keys = one.get("properties", {})
        docs = _field_docs(described[name]) if name in described else {}
        keys.update({key: {"description": docs[key], **keys[key]} for key in docs})
        always = {name for name, key in keys.items() if "default" in key}
        if keys:
            one["required"] = [name for name in keys if name in {*one["required"], *always}]
        _simplify(one)
    return found


def _structs(info: Any) -> Iterator[type]:
    """Every Struct in a description of :mod:`msgspec.inspect`; a type may come more than once."""
    if isinstance(info, tuple):
        for one in info:
            yield from _structs(one)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        if isinstance(info, msgspec.inspect.StructType):
            yield info.cls
        for name in info.__struct_fields__:
            yield from _structs(getattr(info, name))


def _field_docs(struct: type) -> dict[str, str]:
    """The text below each field of ``struct``, inherited fields included."""
    found: dict[str, str] = {}
    for one in reversed(struct.__mro__):
        if issubclass(one, msgspec.Struct) and one is not msgspec.Struct:
            found.update(texts_below(one.__module__)[one.__name__])
    return found


@cache
def texts_below(module: str) -> dict[str, dict[str, str]]:
    """The text below each field or constant of a module's classes, by class.

    Python drops these texts, so its source is parsed.
    """
    found: dict[str, dict[str, str]] = {}
    for struct in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(struct, ast.ClassDef):
            continue
        docs = found.setdefault(struct.name, {})
        for field, after in zip(struct.body, struct.body[1:], strict=False):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)) | ast.Assign(targets=[ast.Name(id=key)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[key] = " ".join(text.split())
    return found


def schema_file() -> str:
    """The content of ``status.schema.json`` in this folder: ``/status``, and each event's data."""
    return schema_text(Status, ResetEvent, *CHANGES, SampleEvent)


def schema_text(document: type, *others: type) -> str:
    """The JSON Schema of ``document``, which also defines ``others``.

    One line for each key, so that a diff shows which keys changed.
    """
    known = definitions(document, *others, ref_template="#/$defs/{name}")
    named = ",\n".join(f"{json.dumps(name)}: {_by_line(one)}" for name, one in known.items())
    dialect, root = "https://json-schema.org/draft/2020-12/schema", f"#/$defs/{document.__name__}"
    return f'{{"$schema": "{dialect}",\n"$ref": "{root}",\n"$defs": {{\n{named}\n}}}}\n'


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
