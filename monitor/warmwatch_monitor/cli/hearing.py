"""Listens to a daemon's ``/events``: one connection, read by whoever waits, with no thread.

Whatever goes wrong is nobody's error here: nothing is heard, and who wants to know asks. It is then
tried anew by itself, the later the more often it went wrong.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterable
from urllib.parse import urlencode

from warmwatch_monitor.cli.daemon import Daemon, connect, request
from warmwatch_monitor.cli.event_stream import Event, NonsenseError, Reader
from warmwatch_monitor.cli.streamed import RefusedError, Streamed
from warmwatch_monitor.errors import WarmwatchError

CONNECT_SECONDS = 2.0
BEGIN_SECONDS = 5.0  # from the connection to the first event
SILENT_SECONDS = 25.0  # the daemon gives a sign of life every 15 s
_PART = 1 << 16
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_CROWD_PAUSE, _STRANGER_PAUSE = 30.0, 60.0
_TRUSTED_SECONDS = 10.0  # a stream that has lived so long is begun anew at once


class Hearing:
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
            asked = request(self._daemon, self._path, "text/event-stream")
            self._peer = connect(self._daemon, max(0.05, min(CONNECT_SECONDS, within)))
            self._peer.sendall(asked)
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
