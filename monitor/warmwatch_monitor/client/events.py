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

LONGEST_EVENT = 64 << 20  # bytes; one that tells of 512 ranks has about 1 MB
_FIELDS = frozenset((b"data", b"event", b"id", b"retry", b""))  # a comment begins with the colon


class NonsenseError(Exception):
    """These are no server-sent events."""


class Event(NamedTuple):
    """A whole one."""

    kind: str
    data: bytes


class Reader:
    """Reads one stream. ``lines`` that have ended are a sign of life, with an event or without."""

    def __init__(self, longest: int = LONGEST_EVENT) -> None:
        self.lines = 0
        self._longest = longest
        self._rest = bytearray()  # of a line that has not ended
        self._kind, self._data = "", list[bytes]()
        self._size = 0  # of the lines so far of an event that has not ended

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


CONNECT_SECONDS = 2.0
BEGIN_SECONDS = 5.0  # from the connection to the first event
SILENT_SECONDS = 25.0  # the daemon gives a sign of life every 15 s
_PART = 1 << 16
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_CROWD_PAUSE, _STRANGER_PAUSE = 30.0, 60.0
_TRUSTED_SECONDS = 10.0  # a stream that has lived so long is begun anew at once


class EventClient:
    """What a daemon tells of ``kinds`` (of all, where none is named), and each second's samples.

    Attributes:
        is_live: it tells what happens: who hears nothing may be sure that nothing did.
        is_crowded: it had no room for one more who listens.
    """

    def __init__(self, kinds: Iterable[str] = (), *, samples: bool = False) -> None:
        wanted = {"kinds": ",".join(kinds), "samples": "true" if samples else ""}
        self._path = f"/events?{urlencode({name: text for name, text in wanted.items() if text})}"
        self._daemon: Daemon | None = None
        self._peer: socket.socket | None = None
        self._reply, self._reader = Streamed(), Reader()
        self._failures, self._again_at = 0, 0.0
        self._began_at = self._heard_at = 0.0
        self.is_live = self.is_crowded = False

    def follow(self, daemon: Daemon | None) -> None:
        """Listen to ``daemon`` from now on; ``None``: to nobody."""
        if daemon != self._daemon:
            self.close()
            self._daemon, self.is_crowded = daemon, False
            self._failures, self._again_at = 0, 0.0

    def connect_where_due(self, within: float) -> None:
        """Connect, where it is not and it is time to; within so many seconds, or hardly more."""
        now = time.monotonic()
        if self._peer is not None or self._daemon is None or now < self._again_at:
            return
        self._reply, self._reader = Streamed(), Reader()
        try:
            self._peer = connect(self._daemon, max(0.05, min(CONNECT_SECONDS, within)))
            self._peer.sendall(request(self._daemon, self._path, "text/event-stream", self._peer))
        except (OSError, WarmwatchError):  # asking says what is wrong
            self._fail()
        self._began_at = self._heard_at = time.monotonic()

    def hear(self, seconds: float) -> list[Event]:
        """The events that came, as soon as there are any; none, where the time is over or it broke
        off.
        """
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
        """Listen no more, until it is time to again."""
        if self._peer is not None:
            self._peer.close()
        self._peer, self.is_live = None, False

    def _read(self, peer: socket.socket, seconds: float) -> list[Event]:
        """Raises OSError: it is over, or silent for too long. RefusedError, NonsenseError."""
        patience = SILENT_SECONDS if self.is_live else BEGIN_SECONDS
        left = self._heard_at + patience - time.monotonic()
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
            self._heard_at = time.monotonic()
        return events

    def _fail(self, pause: float | None = None) -> None:
        """It broke off, or never began: listen again after a ``pause``, if it is known."""
        if self.is_live and time.monotonic() - self._began_at > _TRUSTED_SECONDS:
            self._failures = 0
        self.close()
        if pause is None:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures)
            self._failures += pause < _LONGEST_PAUSE  # a power without end is no number
        # not all who listened come back in the same moment
        self._again_at = time.monotonic() + pause * random.uniform(0.5, 1.0)  # noqa: S311
