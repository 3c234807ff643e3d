"""The page at ``/docs``: the OpenAPI document as plain HTML. Pure.

Made here, without external resources: a daemon often runs where no browser reaches the internet,
and the usual pages load their scripts from there. It needs no script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Node = Mapping[str, Any]

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.45 ui-monospace, monospace }
pre { border: 1px solid #8886; border-radius: 6px; padding: .75rem }
pre { overflow: auto; max-height: 32rem }
h2 { border-top: 1px solid #8886; padding-top: 1rem; margin-top: 2rem }
table { border-collapse: collapse }
td, th { text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0 }
"""


def page(document: Node) -> str:
    """The whole page for an OpenAPI document."""
    info = document["info"]
    title = f"{info['title']} {info['version']}"
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(info.get('summary', ''))}</p>",
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += _operation(f"{method.upper()} {path}", operation, document)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>"
    )


def _operation(name: str, operation: Node, document: Node) -> Iterator[str]:
    yield f"<h2><code>{escape(name)}</code></h2><p>{_words(operation.get('description', ''))}</p>"
    if parameters := operation.get("parameters"):
        yield _table("parameter", (_parameter(parameter) for parameter in parameters))
    yield _table("answer", (_response(code, item) for code, item in operation["responses"].items()))
    for code, response in operation["responses"].items():
        for kind, content in response.get("content", {}).items():
            schema = content.get("schema", {})
            if (fields := _fields(schema, document)) and code == "200":
                yield f"<h3>Fields</h3>{_table('field', fields)}"
            for value in schema.get("oneOf", ()):
                yield from _event(value, document)
            if "example" in content:
                example = json.dumps(content["example"], indent=2)
                yield f"<h3>{escape(code)} ({escape(kind)})</h3><pre>{escape(example)}</pre>"


def _event(values: Node, document: Node) -> Iterator[str]:
    """One event of a stream, without the fields that `/status` has too."""
    *_, own = values["allOf"]
    schema = _resolved(own, document)
    text = _words(schema.get("description", ""))
    yield f"<h3>Event <code>{escape(values['title'])}</code></h3><p>{text}</p>"
    if not own["$ref"].endswith("/Status"):
        yield _table("field", _fields(own, document))


def _table(what: str, lines: Any) -> str:
    rows = "".join(f"<tr><td>{name}</td><td>{text}</td></tr>" for name, text in lines)
    return f"<table><tr><th>{what}</th><th>meaning</th></tr>{rows}</table>"


def _parameter(parameter: Node) -> tuple[str, str]:
    schema = parameter.get("schema", {})
    parts = [_words(parameter.get("description", ""))]
    if values := schema.get("enum"):
        parts.append(
            "One of " + ", ".join(f"<code>{escape(str(value))}</code>" for value in values)
        )
    if schema.get("default") is not None:
        parts.append(f"Without it <code>{escape(str(schema['default']))}</code>")
    place = "header " if parameter["in"] == "header" else ""
    return f"{place}<code>{escape(parameter['name'])}</code>", ". ".join(
        name.rstrip(".") for name in parts if name
    )


def _response(code: str, response: Node) -> tuple[str, str]:
    return f"<code>{escape(code)}</code>", _words(response.get("description", ""))


def _fields(
    schema: Node, document: Node, prefix: str = "", above: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    """Each described field of a schema by its path; references are followed."""
    if (reference := schema.get("$ref", "")) in above:
        return []
    above = (*above, reference) if reference else above
    schema = _resolved(schema, document)
    result = []
    for name, field in schema.get("properties", {}).items():
        ways = [field, *field.get("anyOf", ())]
        whole = [_resolved(way, document) for way in ways]
        texts = [way["description"] for way in (*ways, *whole) if way.get("description")]
        if texts:  # its own description, or else that of its reference
            result.append((f"<code>{escape(prefix + name)}</code>", _words(texts[0])))
        for value, resolved in zip(ways, whole, strict=True):
            result += _fields(value, document, f"{prefix}{name}.", above)
            result += _fields(resolved.get("items", {}), document, f"{prefix}{name}[].", above)
    return result


def _resolved(schema: Node, document: Node) -> Node:
    value: Any = schema
    if reference := schema.get("$ref"):
        value = document
        for name in reference.removeprefix("#/").split("/"):
            value = value[name]
    return dict(value)


def _words(text: str) -> str:
    """A description with its `code` marked."""
    parts = escape(" ".join(text.split())).split("`")
    return "".join(f"<code>{name}</code>" if i % 2 else name for i, name in enumerate(parts))
