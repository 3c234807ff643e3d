"""Answers as bytes, made once for each Snapshot and sent to every client.

Five Snapshots a second are published, and each may be requested a thousand times: an answer is
cached until the next Snapshot, also its compressed form for clients that accept it.

The files of the page at ``/`` are read once, when first requested. They load nothing from other
servers, and the headers forbid it. The wheel contains the charting library
(``monitor/hatch_build.py``); in a checkout without it the page has no charts.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from warmwatch_monitor.model.snapshot import Snapshot

COSTLY_SECONDS = 0.02  # of CPU time
_HELD_PER_COST, _LONGEST_HELD = 10, 2.0
_WORTH_COMPRESSING = 1024
_LEVEL = 4  # nearly as small as the best, in a third of the time


class Body:
    """An answer with its media type."""

    __slots__ = ("_gzipped", "kind", "plain")

    def __init__(self, plain: bytes, kind: str) -> None:
        self.plain, self.kind = plain, kind
        self._gzipped: bytes | None = None

    def encoded(self, accept: str) -> tuple[bytes, dict[str, str]]:
        """Its bytes and headers for a client with this ``Accept-Encoding``."""
        headers = {"content-type": self.kind, "vary": "accept, accept-encoding"}
        if len(self.plain) < _WORTH_COMPRESSING or not takes_gzip(accept):
            return self.plain, headers
        return self.compressed()._gzipped or b"", {**headers, "content-encoding": "gzip"}

    def compressed(self) -> Body:
        """Itself, compressed: on a thread, if it is large."""
        if self._gzipped is None:
            self._gzipped = gzip.compress(self.plain, _LEVEL, mtime=0)
        return self


class SnapshotCache:
    """Results for the newest Snapshot, by a key. Used only on the event loop."""

    def __init__(self) -> None:
        self._of: Snapshot | None = None
        self._made: dict[Hashable, Any] = {}
        self._costly: dict[Hashable, tuple[Any, float]] = {}  # and when each expires

    def get_costly(self, snapshot: Snapshot, key: Hashable, make: Callable[[], Any]) -> Any:
        """As :meth:`get`; an expensive result is returned for later Snapshots too.

        It is cached for ten times as long as it took, at most 2 s. So clients that request the
        largest answers without a pause do not block the event loop.
        """
        made, until = self._costly.pop(key, (None, 0.0))
        if time.monotonic() >= until:
            began = time.thread_time()
            made = self.get(snapshot, key, make)
            took = time.thread_time() - began
            until = time.monotonic() + min(_HELD_PER_COST * took, _LONGEST_HELD)
            if took < COSTLY_SECONDS:
                return made
        self._costly[key] = made, until
        return made

    def get(self, snapshot: Snapshot, key: Hashable, make: Callable[[], Any]) -> Any:
        """The result of ``make``, called once per key and Snapshot; exceptions pass through."""
        if self._of is not snapshot:
            self._of, self._made = snapshot, {}
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def json_body(value: object) -> Body:
    return Body(_json(value), "application/json")


def json_body_of_many(value: Mapping[str, Any]) -> Body:
    """The same for an object with long lists, for a thread.

    Encodes one item at a time: during an item no other Python code runs, not even the event loop.
    """
    parts = (
        b"%b:[%b]" % (_json(name), b",".join(map(_json, part)))
        if isinstance(part, list)
        else b"%b:%b" % (_json(name), _json(part))
        for name, part in value.items()
    )
    return Body(b"{%b}" % b",".join(parts), "application/json")


def _json(value: object) -> bytes:
    """JSON without control characters and non-ASCII, safe to show in a terminal.

    Python's encoder escapes them, and bytes of a name that are not UTF-8.
    """
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = b""
    if encoded.isascii() and encoded and b"\x7f" not in encoded:
        return encoded
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def takes_gzip(accept: str) -> bool:
    """Whether an ``Accept-Encoding`` header accepts gzip."""
    for text in accept.lower().split(","):
        name, _, weight = text.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


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
