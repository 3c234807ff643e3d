"""Reads server-sent events, from bytes as they come to whole events. Pure.

Stricter than a browser: a line that is none of the format is an error, and so is an event without
measure. Lines end as the daemon ends them, or with CR LF. Ids are passed over: who hears a daemon
asks it what is so behind the beginning of each connection, and needs none of what was told before.
"""

from __future__ import annotations

from typing import NamedTuple

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
