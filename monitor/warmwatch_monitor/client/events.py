"""Reads a daemon's ``/events`` over one connection, without a thread."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlencode

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from warmwatch_monitor.client.daemon import Daemon, connect, request
from warmwatch_monitor.errors import WarmwatchError

LONGEST_EVENT = 64 << 20  # bytes; an event about 512 ranks has about 1 MB
_FIELDS = frozenset((b"data", b"event", b"id", b"retry", b""))  # a comment begins with the colon


class NonsenseError(Exception):
    """The data are not server-sent events."""


class Event(NamedTuple):
    """A complete server-sent event."""

    kind: str
    data: bytes


class Reader:
    """Parses one stream. ``lines``: number of complete lines, each a sign of life."""

    def __init__(self, longest: int = LONGEST_EVENT) -> None:
        self.lines = 0
        self._longest = longest
        self._rest = bytearray()  # of an incomplete line
        self._kind, self._data = "", list[bytes]()
        self._size = 0  # of the lines so far of an incomplete event

    def feed(self, part: bytes) -> list[Event]:
        """The events that ``part`` ends. Raises NonsenseError."""
        found = []
        head, ends, rest = part.rpartition(b"\n")
        if ends:
            lines = (bytes(self._rest) + head).split(b"\n")
            self._rest.clear()
            self.lines += len(lines)
            found = [event for line in lines if (event := self._take(line.removesuffix(b"\r")))]
        self._rest += rest
        if self._size + len(self._rest) > self._longest:
            raise NonsenseError(f"an event of more than {self._longest} bytes")
        return found

    def _take(self, line: bytes) -> Event | None:
        """The event that ``line`` ends. Raises NonsenseError."""
        if not line:
            event = Event(self._kind or "message", b"\n".join(self._data)) if self._data else None
            self._kind, self._data, self._size = "", [], 0
            return event
        self._size += len(line)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name not in _FIELDS:
            raise NonsenseError("a line that is none of server-sent events")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value.decode("ascii", "replace")
        return None


_LONGEST_HEAD = 65_536
_CROWDED = 503


class RefusedError(Exception):
    """The daemon sent no event stream. ``is_crowded``: it has its maximum number of clients."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.is_crowded = status == _CROWDED


class Streamed:
    """One HTTP response. The parser calls all methods except ``feed``."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._is_stream = self._is_headed = False
        self._taken = 0
        self._body = bytearray()

    def feed(self, part: bytes) -> bytes:
        """The bytes of the body in ``part``. Raises RefusedError, NonsenseError."""
        try:
            self._parser.feed_data(part)
        except (HttpParserError, HttpParserUpgrade) as error:  # unrelated classes
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
        """Parser callback."""
        if name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream"):
            self._is_stream = True

    def on_headers_complete(self) -> None:
        """Parser callback."""
        self._is_headed = True
        self._is_stream = self._is_stream and self._parser.get_status_code() == 200

    def on_body(self, part: bytes) -> None:
        """Parser callback."""
        self._body += part


CONNECT_SECONDS = 2.0
BEGIN_SECONDS = 5.0  # from the connection to the first event
SILENT_SECONDS = 25.0  # the daemon sends at least a comment every 15 s
_PART = 1 << 16
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_CROWD_PAUSE, _STRANGER_PAUSE = 30.0, 60.0
_TRUSTED_SECONDS = 10.0  # after a longer stream, the backoff starts again


class EventClient:
    """Receives a daemon's events of ``kinds`` (all by default), and with ``samples`` one a second.

    Attributes:
        is_live: the stream has begun, so silence means that nothing happened.
        is_crowded: the daemon has its maximum number of clients.
    """

    def __init__(self, kinds: Iterable[str] = (), *, samples: bool = False) -> None:
        wanted = {"kinds": ",".join(kinds), "samples": "true" if samples else ""}
        self._path = f"/events?{urlencode({name: text for name, text in wanted.items() if text})}"
        self._daemon: Daemon | None = None
        self._peer: socket.socket | None = None
        self._reply, self._reader = Streamed(), Reader()
        self._failures, self._again_at = 0, 0.0
        self._began_at = self._received_at = 0.0
        self.is_live = self.is_crowded = False

    def follow(self, daemon: Daemon | None) -> None:
        """Receive from ``daemon`` from now on; ``None``: from no daemon."""
        if daemon != self._daemon:
            self.close()
            self._daemon, self.is_crowded = daemon, False
            self._failures, self._again_at = 0, 0.0

    def connect_where_due(self, within: float) -> None:
        """Connect if disconnected and a retry is due, within about ``within`` seconds."""
        now = time.monotonic()
        if self._peer is not None or self._daemon is None or now < self._again_at:
            return
        self._reply, self._reader = Streamed(), Reader()
        try:
            self._peer = connect(self._daemon, max(0.05, min(CONNECT_SECONDS, within)))
            self._peer.sendall(request(self._daemon, self._path, "text/event-stream", self._peer))
        except (OSError, WarmwatchError):  # a query of the daemon will report the error
            self._fail()
        self._began_at = self._received_at = time.monotonic()

    def receive(self, seconds: float) -> list[Event]:
        """Wait for events; returns none after ``seconds`` or if the stream ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._peer is None:
                time.sleep(left)
                return []
            try:
                events = self._read(self._peer, left)
            except RefusedError as refusal:
                self.is_crowded = refusal.is_crowded
                self._fail(_CROWD_PAUSE if refusal.is_crowded else _STRANGER_PAUSE)
                return []
            except (OSError, NonsenseError):
                self._fail()
                return []
            if events:
                return events
        return []

    def close(self) -> None:
        """Disconnect, until the next retry."""
        if self._peer is not None:
            self._peer.close()
        self._peer, self.is_live = None, False

    def _read(self, peer: socket.socket, seconds: float) -> list[Event]:
        """Raises OSError if the stream ended or is silent, RefusedError, NonsenseError."""
        patience = SILENT_SECONDS if self.is_live else BEGIN_SECONDS
        left = self._received_at + patience - time.monotonic()
        if left <= 0:
            raise TimeoutError
        peer.settimeout(max(0.001, min(seconds, left)))
        try:
            part = peer.recv(_PART)
        except TimeoutError:
            return []
        if not part:
            raise ConnectionError
        before = self._reader.lines
        events = self._reader.feed(self._reply.feed(part))
        if events:
            self.is_live, self.is_crowded = True, False
        if self.is_live and self._reader.lines > before:
            self._received_at = time.monotonic()
        return events

    def _fail(self, pause: float | None = None) -> None:
        """Disconnect, and retry after ``pause`` seconds; by default with exponential backoff."""
        if self.is_live and time.monotonic() - self._began_at > _TRUSTED_SECONDS:
            self._failures = 0
        self.close()
        if pause is None:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures)
            self._failures += pause < _LONGEST_PAUSE  # bounded, or the power would overflow
        # spread the clients: not all reconnect at the same time
        self._again_at = time.monotonic() + pause * random.uniform(0.5, 1.0)  # noqa: S311
