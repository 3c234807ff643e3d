"""The files of the page at ``/``, read once, when first requested.

They load nothing from other servers, and the headers forbid it. The wheel contains the charting
library (``monitor/hatch_build.py``); in a checkout without it the page has no charts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from warmwatch_monitor.server.api.cached import Body

_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
# file -> media type; no other file is sent
FILES: Mapping[str, str] = {
    "index.html": "text/html; charset=utf-8",
    **dict.fromkeys(
        ("icon.svg", "icon-busy.svg", "icon-warm.svg", "icon-trouble.svg", "icon-ended.svg"),
        "image/svg+xml",
    ),
    "LICENSE-uPlot.txt": "text/plain; charset=utf-8",
    "page.css": _STYLE,
    "charts.css": _STYLE,
    "main.js": _SCRIPT,
    "headline.js": _SCRIPT,
    "runs.js": _SCRIPT,
    "scales.js": _SCRIPT,
    "hover.js": _SCRIPT,
    "live.js": _SCRIPT,
    "past.js": _SCRIPT,
    "charts.js": _SCRIPT,
    "lanes.js": _SCRIPT,
    "tables.js": _SCRIPT,
    "place.js": _SCRIPT,
    "show.js": _SCRIPT,
    "uPlot.js": _SCRIPT,
    "uPlot.css": _STYLE,
}
_LIBRARY = ("uPlot.js", "uPlot.css")
HEADERS: Mapping[str, str] = {
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}


def file(name: str) -> Body | None:
    """One of FILES; ``None`` for other names, or if the file is missing."""
    return _read(name) if name in FILES else None


@cache
def _read(name: str) -> Body | None:
    """Called for FILES only: the cache would keep other names for ever."""
    place = files("warmwatch_monitor").joinpath("page")
    place = place.joinpath("library", name) if name in _LIBRARY else place.joinpath(name)
    try:
        return Body(place.read_bytes(), FILES[name])
    except FileNotFoundError:
        return None
