"""The last events, numbered, as bytes, in bounded memory.

The publisher's thread adds each Snapshot; the event loop reads.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from typing import NamedTuple

from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.server.api.cached import json_body
from warmwatch_monitor.server.api.changes import Change, changes, has_runs, source_changes

MOST = 8192
MOST_BYTES = 8 << 20


class ForgottenError(Exception):
    """The requested events have left the ring, or were never in it; the message says which."""


class Event(NamedTuple):
    """One event: its number and kind, the possible ``?run=`` values (``None``: no run), its
    bytes."""

    number: int
    kind: str
    names: frozenset[str] | None
    content: bytes


class Wanted(NamedTuple):
    """A client's filter: one run and some kinds; ``None`` means all."""

    run: str | None = None
    kinds: frozenset[str] = frozenset()

    def has(self, event: Event) -> bool:
        if self.kinds and event.kind not in self.kinds:
            return False
        return self.run is None or event.names is None or self.run in event.names


class Recent:
    """A ring of events. ``life`` separates this daemon's numbers from those of other daemons."""

    def __init__(
        self, *, most: int = MOST, most_bytes: int = MOST_BYTES, life: str | None = None
    ) -> None:
        self._most, self._most_bytes = most, most_bytes
        self.life = life or secrets.token_hex(4)
        self._events: deque[Event] = deque()
        self._bytes, self._lock = 0, threading.Lock()
        self.changes: list[Change] = []  # of the last Snapshot
        self._before: Snapshot | None = None
        self._before_of_runs: Snapshot | None = None
        self.number = 0  # of the newest

    def take(self, snapshot: Snapshot) -> None:
        """Add the changes since the last Snapshot. A run that cannot be read is not gone."""
        self.changes = result = list[Change]()
        if self._before is not None:
            result += (Change(event) for event in source_changes(self._before, snapshot))
        self._before = snapshot
        if has_runs(snapshot):
            if self._before_of_runs is not None:
                result += changes(self._before_of_runs, snapshot)
            self._before_of_runs = snapshot
        for change in result:
            self._add(change)

    def after(
        self, number: int, wanted: Wanted, most_bytes: int = 1 << 16
    ) -> tuple[int, list[bytes]]:
        """The ``wanted`` events after ``number``, and the number up to which they go.

        Raises:
            ForgottenError: some of them have left the ring.
        """
        with self._lock:
            oldest = self._events[0].number if self._events else self.number + 1
            if number < oldest - 1:
                raise ForgottenError("too_old")
            result, size = [], 0
            skipped = number - (oldest - 1)
            for at in range(skipped, len(self._events)):
                event = self._events[at]
                number = event.number
                if wanted.has(event):
                    result.append(event.content)
                    size += len(event.content)
                    if size >= most_bytes:
                        break
            return number, result

    def id_of(self, number: int) -> str:
        return f"{self.life}-{number}"

    def number_of(self, id: str) -> int:
        """The number in a client's last id.

        Raises:
            ForgottenError: it belongs to another daemon's life, or was never assigned.
        """
        life, _, number = id.rpartition("-")
        if life != self.life:
            raise ForgottenError("another_daemon")
        count = int(number) if number.isascii() and number.isdecimal() and len(number) < 16 else -1
        if not 0 <= count <= self.number:
            raise ForgottenError("another_daemon")
        return count

    def _add(self, change: Change) -> None:
        number = self.number + 1
        kind = change.event.kind
        content = framed(kind, json_body(change.event).plain, self.id_of(number))
        with self._lock:
            self._events.append(Event(number, kind, change.names, content))
            self._bytes += len(content)
            self.number = number
            while len(self._events) > self._most or self._bytes > self._most_bytes:
                self._bytes -= len(self._events.popleft().content)


def framed(kind: str, data: bytes, id: str | None = None) -> bytes:
    """One server-sent event; ``data`` is JSON without line breaks."""
    named = f"id: {id}\n" if id is not None else ""
    return f"event: {kind}\n{named}data: ".encode() + data + b"\n\n"
