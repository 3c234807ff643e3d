"""What a record's journal tells of compile caches that were asked: read whole, when asked for it.

Never at each look: one who asks reads the journals of the run that he asks about. In a shared
directory anybody can write one, so a line is believed as far as an agent would have written it, and
what is packed is unpacked to a bound.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Mapping

from warmwatch import record
from warmwatch.bounds import VERDICTS
from warmwatch_monitor.model.keys import Asked
from warmwatch_monitor.sources import entries, journal
from warmwatch_monitor.sources.folder import Folder

_UNPACKED = 4 * 1024 * 1024
_MOST = 2_000
_PARTS = 2_000_000  # of all keys together: about 200 MB


def asked_in(folder: str) -> list[Asked]:
    """All of one record, oldest first. Raises OSError, RecordError."""
    with Folder(folder) as opened:
        descriptor, status = opened.open(record.JOURNAL)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(min(status.st_size, journal.LARGEST))
    found: list[Asked] = []
    first: dict[str, Mapping[str, str]] = {}
    room = _PARTS
    for line in data.splitlines():
        if b'"event":"cache"' in line and len(found) < _MOST and room > 0:
            try:
                found.append(_asked(entries.parse(line), first))
            except ValueError:
                continue  # one that no agent writes
            room -= len(found[-1].hashes)
    return found


def _asked(entry: entries.Entry, first: dict[str, Mapping[str, str]]) -> Asked:
    """Raises ValueError where the entry is not that of a cache."""
    cache = entries.text(entry, "cache", entries.LONGEST_NAME)
    verdict = entries.text(entry, "verdict", entries.LONGEST_NAME)
    if cache not in record.CACHES or verdict not in VERDICTS:
        raise ValueError("not a cache's")
    parts = entry.get("parts")
    return Asked(
        cache=cache,
        verdict=verdict,
        id=entries.text(entry, "id", entries.LONGEST_NAME),
        key=entries.text(entry, "key", entries.LONGEST_NAME),
        reason=entries.text(entry, "reason", entries.LONGEST_TEXT),
        parts=parts if type(parts) is int and 0 < parts < 10**6 else None,
        hashes=_hashes(entry, cache, first),
    )


def _hashes(
    entry: entries.Entry, cache: str, first: dict[str, Mapping[str, str]]
) -> Mapping[str, str]:
    packed = entry.get("packed")
    if not isinstance(packed, str):
        return {}
    told = _unpacked(packed)
    if entry.get("whole") is True:
        first[cache] = told
        return told
    merged = {**first.get(cache, {}), **told}
    return {name: short for name, short in merged.items() if short != "-"}


def _unpacked(packed: str) -> dict[str, str]:
    """Raises ValueError."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(base64.b64decode(packed, validate=True), _UNPACKED)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if unpacker.unconsumed_tail:
        raise ValueError("larger than any agent's")
    pairs = (line.rpartition(" ") for line in data.decode("ascii").split("\n"))
    return {name: short for name, _, short in pairs if name and name.isprintable()}
