"""A document as one HTML file: no external requests, light and dark, printable.

The template engine escapes everything. The page's own content security policy allows no scripts and
no requests, and only its one style sheet, by digest.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType

from jinja2 import Environment, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from warmwatch_monitor.commands.report import charts
from warmwatch_monitor.commands.report.parts import Report
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.output.document import Document

_HERE = "warmwatch_monitor.commands.report"
_PAGE = "warmwatch_monitor.page"
_COLOURS_END = "* { box-sizing"


def html(
    document: Document,
    report: Report,
    summary: RunSummary,
    traced: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The HTML page of a report. Texts are printable.

    ``traced``: URLs by compile id, which the chart of compile time links to.
    """
    drawn = {
        "goodput": charts.goodput(report),
        "timeline": charts.icicle(report, traced),
    }
    return rendered(document, drawn, charts.samples(summary, report))


def rendered(
    document: Document, drawn: dict[str, Markup | None], more: Sequence[tuple[str, Markup]] = ()
) -> str:
    """``drawn``: charts by the name in a section. ``more``: charts at the end."""
    style = _style()
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    engine = Environment(
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters["words"] = words
    template = engine.from_string(_read(_HERE, "report.html"))
    return template.render(
        document=document,
        drawn=drawn,
        more=more,
        policy=policy,
        style=Markup(style),  # noqa: S704 - our own file, without any input
    )


def words(text: str) -> Markup:
    """``text`` with backticks converted to code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unclosed backtick is literal
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part)
        for at, part in enumerate(parts)
    )


@cache
def _style() -> str:
    """The page's colours and the layout of a report. Print always uses light colours."""
    colours = _read(_PAGE, "page.css").partition(_COLOURS_END)[0]
    screen = colours.replace("@media (", "@media screen and (")
    return screen + _read(_HERE, "report.css")


def _read(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")
