"""Reads records directly, for tests that bypass the monitor."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.torch_versions import TORCH
from warmwatch.shared import record


@contextmanager
def without_errors(directory: Path) -> Iterator[Path]:
    """A new record directory; at the end, no agent may have errors or lack a hook point."""
    directory.mkdir(exist_ok=True)
    yield directory
    for folder in folders(directory):
        slot = read(folder)
        assert slot.compile.agent_errors == 0, errors(folder)
        looked_up = {*slot.identity.hooks, *slot.identity.missing}
        without_dynamo = "compilations" not in looked_up  # its hook points are looked up with it
        assert slot.identity.missing == (() if without_dynamo else TORCH.missing)


def folders(directory: Path) -> list[Path]:
    """The records in a directory, oldest first."""
    there = [path for path in directory.iterdir() if not path.name.startswith(".")]
    found = [path for path in there if (path / record.SLOT).is_file()]
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
