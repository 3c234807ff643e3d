"""HTML from templates: everything is escaped, and code in a text is marked."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template, select_autoescape
from markupsafe import Markup, escape


def template(package: str, name: str) -> Template:
    """The template of that name in a package."""
    return _engine().from_string(read(package, name))


def read(package: str, name: str) -> str:
    """The text of a file in a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


@cache
def _engine() -> Environment:
    engine = Environment(
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters["words"] = words
    return engine


def words(text: str) -> Markup:
    """``text`` with backticks converted to code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unclosed backtick is literal
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part)
        for at, part in enumerate(parts)
    )
