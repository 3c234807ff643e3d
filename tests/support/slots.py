"""What records say, read the plain way: for tests that look behind the monitor."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from warmwatch import record


def folders(directory: Path) -> list[Path]:
    """The records in a directory, oldest first."""
    found = [path for path in directory.iterdir() if not path.name.startswith(".")]
    return sorted(found, key=lambda folder: read(folder).header.attached_ns)


def only(directory: Path) -> Path:
    """The one record there is."""
    (folder,) = folders(directory)
    return folder


def read(folder: Path) -> record.Slot:
    """A record's slot, whole."""
    while True:
        with contextlib.suppress(record.TornError):
            return record.unpack((folder / record.SLOT).read_bytes())


def events(folder: Path) -> list[dict[str, Any]]:
    """A record's journal."""
    return [json.loads(line) for line in (folder / record.JOURNAL).read_text().splitlines()]


def errors(folder: Path) -> list[str]:
    """Lines about swallowed errors, also of a journal that holds a torn line."""
    lines = (folder / record.JOURNAL).read_text().splitlines()
    return [line for line in lines if '"event":"error"' in line]
