"""Reads a daemon's ``/events`` over one connection, without a thread."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlencode

from warmwatch_monitor.base.errors import WarmwatchError
from warmwatch_monitor.client.daemon import Daemon, NotHttpError, send

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
        result = []
        head, ends, rest = part.rpartition(b"\n")
        if ends:
            lines = (bytes(self._rest) + head).split(b"\n")
            self._rest.clear()
            self.lines += len(lines)
            result = [event for line in lines if (event := self._take(line.removesuffix(b"\r")))]
        self._rest += rest
        if self._size + len(self._rest) > self._longest:
            raise NonsenseError(f"an event of more than {self._longest} bytes")
        return result

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


CONNECT_SECONDS = 2.0  # also until the head of the response
BEGIN_SECONDS = 5.0  # from the connection to the first event
SILENT_SECONDS = 25.0  # the daemon sends at least a comment every 15 s
_PART = 1 << 16
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STRANGER_PAUSE = 60.0
_TRUSTED_SECONDS = 10.0  # after a longer stream, the backoff starts again


class EventClient:
    """Receives a daemon's events of ``kinds``.

    Attributes:
        is_live: the stream has begun, so silence means that nothing happened.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self._path = f"/events?{urlencode({'kinds': ','.join(kinds)})}"
        self._daemon: Daemon | None = None
        self._peer: socket.socket | None = None
        self._reader, self._begin = Reader(), b""
        self._failures, self._again_at = 0, 0.0
        self._began_at = self._received_at = 0.0
        self.is_live = False

    def follow(self, daemon: Daemon | None) -> None:
        """Receive from ``daemon`` from now on; ``None``: from no daemon."""
        if daemon != self._daemon:
            self.close()
            self._daemon = daemon
            self._failures, self._again_at = 0, 0.0

    def connect_where_due(self, within: float) -> None:
        """Connect if disconnected and a retry is due, within about ``within`` seconds."""
        now = time.monotonic()
        if self._peer is not None or self._daemon is None or now < self._again_at:
            return
        seconds = max(0.05, min(CONNECT_SECONDS, within))
        try:
            reply = send(self._daemon, self._path, seconds, "text/event-stream")
        except (OSError, WarmwatchError, NotHttpError):  # a query of the daemon reports the error
            self._fail()
            return
        self._peer, self._reader, self._begin = reply.peer, Reader(), reply.begin
        self._began_at = self._received_at = time.monotonic()
        if reply.status != 200 or not reply.is_stream:
            self._fail(_STRANGER_PAUSE)

    def receive(self, seconds: float) -> list[Event]:
        """Wait for events; returns none after ``seconds`` or if the stream ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._peer is None:
                time.sleep(left)
                return []
            try:
                events = self._read(self._peer, left)
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
        """Raises OSError if the stream ended or is silent, NonsenseError."""
        part, self._begin = self._begin, b""
        if not part:
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
        events = self._reader.feed(part)
        self.is_live = self.is_live or bool(events)
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
