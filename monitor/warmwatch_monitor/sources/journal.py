"""A record's journal, followed: whole lines only, from a remembered offset.

A torn or foreign line is counted and passed over. Of a journal that was long before the first look
only the end is read, for only the last compilations are kept.
"""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path
from typing import Any

from warmwatch import record
from warmwatch_monitor.model import Compilation, Fallback

KEPT = 20
CHUNK = 256 * 1024
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Journal:
    """The journal at ``path``. Its state is what :meth:`follow` has read of it so far."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._offset, self._begun = 0, False
        self._last: deque[Compilation] = deque(maxlen=KEPT)
        self._fallbacks: deque[Fallback] = deque(maxlen=KEPT)
        self._rest = b""
        self.broken_lines = 0
        self.agent_error: str | None = None

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """The last ones, oldest first."""
        return tuple(self._last)

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """Frames that hit the recompile limit, oldest first."""
        return tuple(self._fallbacks)

    @property
    def torn_end(self) -> bool:
        """Whether it ends, as far as it was read, in the middle of a line."""
        return bool(self._rest)

    def follow(self) -> bool:
        """Read what was appended; whether there was anything. A missing journal is an empty one.

        Raises:
            OSError: it is there and cannot be read.
        """
        try:
            size = self._path.stat().st_size
            if size == self._offset + len(self._rest):
                return False
            descriptor = os.open(self._path, _FLAGS)
        except FileNotFoundError:
            return False
        try:
            self._start(descriptor, size)
            while self._chunk(descriptor):
                pass
        finally:
            os.close(descriptor)
        return True

    def _start(self, descriptor: int, size: int) -> None:
        """Where to go on: at the first look near the end, at a cut one from the beginning."""
        if self._begun and size >= self._offset:
            return
        self._begun = True
        self._last.clear()
        self._fallbacks.clear()
        self._offset = max(0, size - CHUNK)
        if self._offset:
            skipped = os.pread(descriptor, CHUNK, self._offset).find(b"\n") + 1
            self._offset += skipped

    def _chunk(self, descriptor: int) -> bool:
        """Take the whole lines of the next chunk; whether there may be more."""
        data = os.pread(descriptor, CHUNK, self._offset)
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if not end and len(data) == CHUNK:  # one line as long as a chunk: no agent writes that
            end, self._rest = len(data), b""
        for line in data[:end].splitlines():
            self._take(line)
        self._offset += end
        return len(data) == CHUNK

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            if entry["event"] == "compilation":
                self._last.append(_compilation(entry))
            elif entry["event"] == "fallback":
                self._fallbacks.append(_fallback(entry))
            elif entry["event"] == "error":
                self.agent_error = f"{entry.get('where')}: {entry.get('message')}"
        except (ValueError, TypeError, KeyError, RecursionError):
            self.broken_lines += 1


def _compilation(entry: dict[str, Any]) -> Compilation:
    """Raises KeyError, TypeError or ValueError where the entry is not a compilation's."""
    kind, category, seconds = entry["kind"], entry.get("category"), entry.get("seconds")
    if category is not None and category not in record.CATEGORIES:
        category = "other"
    return Compilation(
        id=str(entry["id"]),
        kind=kind if kind in record.KINDS else "other",
        at_ns=int(entry["t"]),
        seconds=None if seconds is None else float(seconds),
        category=category,
        reason=_text(entry, "reason"),
        name=_text(entry, "name"),
        cache=_text(entry, "cache"),
        failure=_text(entry, "failure"),
    )


def _fallback(entry: dict[str, Any]) -> Fallback:
    """Raises KeyError, TypeError or ValueError where the entry is not a fallback's."""
    limit = entry.get("limit")
    return Fallback(
        at_ns=int(entry["t"]),
        step=int(entry["steps"]),
        name=_text(entry, "name"),
        limit=None if limit is None else int(limit),
        setting=_text(entry, "setting"),
    )


def _text(entry: dict[str, Any], key: str) -> str | None:
    value = entry.get(key)
    return None if value is None else str(value)
