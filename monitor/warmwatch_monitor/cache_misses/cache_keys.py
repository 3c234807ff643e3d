"""Cache keys from a record's whole journal, and how they differ from another rank's or run's."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from warmwatch.shared import record
from warmwatch.shared.values import VERDICTS
from warmwatch_monitor.model import RecordReading
from warmwatch_monitor.sources.records import journal_lines
from warmwatch_monitor.sources.records.folder import Folder


class Lookup(Struct, frozen=True, kw_only=True):
    """A lookup or a bypass of a compile cache.

    Attributes:
        cache: one of ``record.CACHES``. verdict: one of ``values.VERDICTS``.
        id: of the compilation. key: its first characters. reason: for a bypass.
        parts: the number of the key's parts; ``None`` if unknown.
        hashes: of each part by its name; empty if there was no space for them.
    """

    cache: str
    verdict: str
    id: str | None = None
    key: str | None = None
    reason: str | None = None
    parts: int | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)


class Other(Struct, frozen=True, kw_only=True):
    """The lookup that a miss is compared with, in another rank or run. ``whose``: in words."""

    whose: str
    lookup: Lookup


class Miss(Struct, frozen=True, kw_only=True):
    """A miss or a bypass.

    Attributes:
        run, rank: where it happened. other: the lookup to compare with; ``None`` if there
            is none. differing: names of parts that differ; ``None`` if unknown.
    """

    run: str
    rank: int
    lookup: Lookup
    other: Other | None = None
    differing: tuple[str, ...] | None = None


_UNPACKED = 4 * 1024 * 1024
_MOST = 2_000
_PARTS = 2_000_000  # of all keys together: about 200 MB


def lookups_in(folder: str) -> list[Lookup]:
    """All lookups of one record, oldest first. Raises OSError, RecordError."""
    with Folder(folder) as opened:
        descriptor, status = opened.open(record.JOURNAL)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(min(status.st_size, journal_lines.LARGEST_JOURNAL))
    found: list[Lookup] = []
    first: dict[str, Mapping[str, str]] = {}
    room = _PARTS
    for line in data.splitlines():
        if b'"event":"cache"' in line and len(found) < _MOST and room > 0:
            try:
                found.append(_lookup(journal_lines.parse(line), first))
            except ValueError:
                continue  # no agent writes this
            room -= len(found[-1].hashes)
    return found


def _lookup(entry: journal_lines.Entry, first: dict[str, Mapping[str, str]]) -> Lookup:
    """Raises ValueError if the entry is not that of a cache."""
    cache = journal_lines.text(entry, "cache", journal_lines.LONGEST_NAME)
    verdict = journal_lines.text(entry, "verdict", journal_lines.LONGEST_NAME)
    if cache not in record.CACHES or verdict not in VERDICTS:
        raise ValueError("not a cache's")
    parts = entry.get("parts")
    return Lookup(
        cache=cache,
        verdict=verdict,
        id=journal_lines.text(entry, "id", journal_lines.LONGEST_NAME),
        key=journal_lines.text(entry, "key", journal_lines.LONGEST_NAME),
        reason=journal_lines.text(entry, "reason", journal_lines.LONGEST_TEXT),
        parts=parts if type(parts) is int and 0 < parts < 10**6 else None,
        hashes=_hashes(entry, cache, first),
    )


def _hashes(
    entry: journal_lines.Entry, cache: str, first: dict[str, Mapping[str, str]]
) -> Mapping[str, str]:
    packed = entry.get("packed")
    if not isinstance(packed, str):
        return {}
    unpacked = _unpacked(packed)
    if entry.get("whole") is True:
        first[cache] = unpacked
        return unpacked
    merged = {**first.get(cache, {}), **unpacked}
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


def misses(
    readings: Sequence[RecordReading], read: Callable[[str], list[Lookup]]
) -> Iterator[Miss]:
    """The misses in the latest start of each run among ``readings``, rank by rank."""
    for run in sorted({reading.slot.identity.run for reading in readings}):
        of_run = [one for one in readings if one.slot.identity.run == run]
        yield from _of_run(run, of_run, read)


def _of_run(
    run: str, readings: Sequence[RecordReading], read: Callable[[str], list[Lookup]]
) -> Iterator[Miss]:
    newest = max(readings, key=lambda one: one.began)
    latest = [one for one in readings if one.start == newest.start]
    by_rank = {one.slot.identity.rank: one for one in sorted(latest, key=lambda one: one.began)}
    lookups = {rank: read(one.folder) for rank, one in sorted(by_rank.items())}
    for rank in lookups:
        before = _before(readings, by_rank[rank])
        others = [(f"rank {other}'s", lookups[other]) for other in lookups if other != rank]
        if before is not None:
            others.append(("the run's before", read(before.folder)))
        for place, one in enumerate(lookups[rank]):
            if one.verdict == "hit":
                continue
            found = _compared(run, rank, one, _same_lookup(lookups[rank], place, others))
            if found.differing is not None or not _is_explained_elsewhere(one, lookups[rank]):
                yield found


def _is_explained_elsewhere(one: Lookup, lookups: Sequence[Lookup]) -> bool:
    """Whether another cache missed in the same compilation and reports its key's parts."""
    same = (other for other in lookups if other.id == one.id and other.cache != one.cache)
    return one.verdict == "miss" and not one.hashes and any(other.hashes for other in same)


def _before(readings: Sequence[RecordReading], of: RecordReading) -> RecordReading | None:
    """The same rank of the previous start; ``None`` if its record is gone."""
    rank = of.slot.identity.rank
    earlier = [one for one in readings if one.slot.identity.rank == rank and one.began < of.began]
    return max(earlier, key=lambda one: one.began, default=None)


def _same_lookup(
    own: Sequence[Lookup], place: int, others: Sequence[tuple[str, list[Lookup]]]
) -> Other | None:
    """The first lookup of the others in the same cache for the same compilation.

    Matched by its id, and within one id (a forward and its backward share it) by order.
    """
    which = (own[place].cache, own[place].id)
    turn = sum((one.cache, one.id) == which for one in own[:place])
    for whose, lookups in others:
        same = [one for one in lookups if (one.cache, one.id) == which and one.verdict != "bypass"]
        if turn < len(same):
            return Other(whose=whose, lookup=same[turn])
    return None


def _compared(run: str, rank: int, lookup: Lookup, other: Other | None) -> Miss:
    if other is None or lookup.verdict == "bypass":
        return Miss(run=run, rank=rank, lookup=lookup)
    return Miss(run=run, rank=rank, lookup=lookup, other=other, differing=_differing(lookup, other))


def _differing(lookup: Lookup, other: Other) -> tuple[str, ...] | None:
    mine, theirs = lookup.hashes, other.lookup.hashes
    if lookup.key is not None and lookup.key == other.lookup.key:
        return ()
    if not mine or not theirs:
        return None
    return tuple(
        name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)
    )
