"""The journal of a record: append-only and bounded. A full journal takes only essential lines."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from warmwatch._guard import pass_on
from warmwatch.process.descriptors import File, leads_to


def line_of(event: str, t: int, values: Mapping[str, Any]) -> bytes:
    """One line of the journal; values that are ``None`` are left out."""
    present = {k: v for k, v in values.items() if v is not None}
    line = json.dumps({"t": t, "event": event, **present}, separators=(",", ":")) + "\n"
    return line.encode("utf-8", "backslashreplace")


class Journal:
    """An open journal. ``room``: its size limit in bytes."""

    def __init__(self, descriptor: int, file: File, room: int) -> None:
        self._descriptor, self._file, self._room = descriptor, file, room
        self._torn = False

    def append(self, line: bytes, *, essential: bool = False) -> bool:
        """Append a line; whether all of it was written."""
        data = b"\n" * self._torn + line
        if (len(data) > self._room and not essential) or not self._is_there():
            return False
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            pass_on(error)
            written = 0
        self._room -= written
        complete = written == len(data)
        # after a partial write the next line starts with a line break
        self._torn = not complete and (self._torn or written > 0)
        return complete

    def close(self) -> None:
        """Close the file."""
        if self._is_there():
            os.close(self._descriptor)
        self._descriptor = -1

    def _is_there(self) -> bool:
        """Whether the descriptor is still the journal's; once it is not, it never is again."""
        if not leads_to(self._descriptor, self._file):
            self._descriptor = -1
        return self._descriptor >= 0
