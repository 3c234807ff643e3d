"""The record's journal, append-only and bounded: when it is full, only essential lines are
added.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from warmwatch._guard import pass_on
from warmwatch.process.descriptors import File, leads_to


def line_of(event: str, t: int, values: Mapping[str, Any]) -> bytes:
    """A line of the journal."""
    known = {k: v for k, v in values.items() if v is not None}
    line = json.dumps({"t": t, "event": event, **known}, separators=(",", ":")) + "\n"
    return line.encode("utf-8", "backslashreplace")


class Journal:
    """A journal that is open. ``room``: bytes that it may take."""

    def __init__(self, descriptor: int, file: File, room: int) -> None:
        self._descriptor, self._file, self._room = descriptor, file, room
        self._torn = False

    def append(self, line: bytes, *, essential: bool = False) -> bool:
        """Append a line; whether that could be done."""
        data = b"\n" * self._torn + line
        if (len(data) > self._room and not essential) or not self._is_there():
            return False
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            pass_on(error)
            written = 0
        self._room -= written
        whole = written == len(data)
        # on a full disk, the next line that fits starts afresh
        self._torn = not whole and (self._torn or written > 0)
        return whole

    def close(self) -> None:
        """Let go of the file."""
        if self._is_there():
            os.close(self._descriptor)
        self._descriptor = -1

    def _is_there(self) -> bool:
        """Whether it can still be written to; once it cannot, it never is again."""
        if not leads_to(self._descriptor, self._file):
            self._descriptor = -1
        return self._descriptor >= 0
