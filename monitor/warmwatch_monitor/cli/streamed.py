"""The reply to who wants events, as it comes: httptools reads HTTP and leaves the body.

The daemon's server sends chunks even to who asks in HTTP/1.0.
"""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from warmwatch_monitor.cli.event_stream import NonsenseError

_LONGEST_HEAD = 65_536
_CROWDED = 503


class RefusedError(Exception):
    """There is nothing to hear. ``is_crowded``: for as many listen as may."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.is_crowded = status == _CROWDED


class Streamed:
    """One reply. Its methods but ``feed`` are called by the parser."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._is_stream = self._is_headed = False
        self._taken = 0
        self._body = bytearray()

    def feed(self, part: bytes) -> bytes:
        """What of the body ``part`` brings. Raises RefusedError, NonsenseError."""
        try:
            self._parser.feed_data(part)
        except (HttpParserError, HttpParserUpgrade) as error:  # the latter is none of the former
            raise NonsenseError(str(error)) from None
        self._taken += len(part)
        if self._is_headed and not self._is_stream:
            raise RefusedError(self._parser.get_status_code())
        if not self._is_headed and self._taken > _LONGEST_HEAD:
            raise NonsenseError("a head without end")
        found = bytes(self._body)
        self._body.clear()
        return found

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called for each."""
        if name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream"):
            self._is_stream = True

    def on_headers_complete(self) -> None:
        """Called once."""
        self._is_headed = True
        self._is_stream = self._is_stream and self._parser.get_status_code() == 200

    def on_body(self, part: bytes) -> None:
        """Called for each part."""
        self._body += part
