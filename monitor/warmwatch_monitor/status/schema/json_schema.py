"""JSON Schema of documents, made from their types. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

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
