"""``warmwatch status --misses``: why compile caches missed, from the records on this machine."""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from warmwatch.shared.phrases import counted
from warmwatch.shared.record import RecordError
from warmwatch_monitor.base.errors import NoRunError, UnknownRunError
from warmwatch_monitor.base.settings import EVER_SECONDS, Settings
from warmwatch_monitor.client.choice import Answer, choose_runs
from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.model.journal import CacheLookup
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.output.amounts import few, own_words
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.parsed_journal import content, parse
from warmwatch_monitor.sources.records.source import RecordsSource
from warmwatch_monitor.status.words.repeating import NAMES
from warmwatch_monitor.status.words.sentence import NO_RUN


def lines(settings: Settings, run: str | None) -> list[str]:
    """A line for each miss and bypass of the latest start of RUN, or of each run.

    Raises:
        UnknownRunError: no record belongs to such a run. NoRunError: there is no record at all.
    """
    readings = RecordsSource(settings.directories, retention=EVER_SECONDS).read().records
    if not readings:
        raise NoRunError(NO_RUN) if run is None else UnknownRunError(run, ())
    names = [sentence(miss) for miss in misses(_chosen(readings, run), _read)]
    return names or ["no compile cache missed or was bypassed, as far as recorded"]


def _chosen(readings: Sequence[RecordReading], run: str | None) -> list[RecordReading]:
    """The readings of the runs that ``run`` selects, by the rules of all commands."""
    named = {reading.slot.identity.run: _as_run(reading) for reading in readings}
    runs = choose_runs([named[name] for name in sorted(named)], run, os.geteuid())
    names = {values["run"] for values in runs}
    return [reading for reading in readings if reading.slot.identity.run in names]


def _as_run(reading: RecordReading) -> Answer:
    """A record's owner and run, as in ``/status``, without its state."""
    shown, owner = reading.slot.identity.run, reading.owner
    return {
        "run": shown,
        "name": owner.plain(shown) if owner else shown,
        "owner": owner.name if owner else None,
        "owner_uid": owner.uid if owner else None,
    }


def _read(folder: str) -> list[Lookup]:
    try:
        return lookups_in(folder)
    except (OSError, RecordError):
        return []  # the record is gone, or belongs to another user


_MOST = 6
_BEFORE = "the run's before"
_ELSEWHERE = "another or an emptied cache directory"
_NAMES = {
    "gm": "the graph",
    "device_index": "device index",
    "torch_version": "PyTorch's version",
    "system_info": "GPU model or driver",
    "deterministic_algorithms_settings": "deterministic algorithms",
    "cuda_matmul_settings": "matmul precision",
}
_GROUPS = {
    "example_inputs": "input",
    "fx_kwargs": "compile option",
    "inductor_config": "inductor config",
    "inductor_config_comms": "inductor config",
}
_PART = re.compile(r"(?P<name>\w+)(?:\[(?P<of>[\w.]+)\])?")


def sentence(miss: Miss) -> str:
    """``gpt2 rank 1, 0/0 (Inductor): missed: 2 of 678 parts of its key differ from ...``."""
    lookup = miss.lookup
    suffix = f", {lookup.id}" if lookup.id else ""
    head = f"{miss.run} rank {miss.rank}{suffix} ({NAMES[lookup.cache]})"
    if lookup.verdict == "bypass":
        return f"{head}: bypassed: {own_words(lookup.reason or 'PyTorch gives no reason', 200)}"
    return f"{head}: missed: {'; '.join(_why(miss))}"


def _why(miss: Miss) -> Iterator[str]:
    if miss.other is None:
        yield "nothing to compare it with: no other rank or earlier run of this name looked it up"
        return
    whose, verdict = miss.other.whose, miss.other.lookup.verdict
    if miss.differing is None:
        yield f"its key differs from {whose}, and PyTorch does not report the parts of one of them"
    elif miss.differing:
        total = max(miss.lookup.parts or 0, len(miss.differing))
        many = f"parts of its key differ{'s' if len(miss.differing) == 1 else ''}"
        yield f"{len(miss.differing)} of {total:,} {many} from {whose}: {differing(miss.differing)}"
    elif verdict == "hit":
        earlier = "" if whose == _BEFORE else "earlier, or "
        yield f"its key is {whose}, which hit: it looked {earlier}into {_ELSEWHERE}"
    else:
        yield f"its key is {whose}, which missed too"


def differing(names: Sequence[str]) -> str:
    """``device index, inductor config max_autotune, 3 inputs``."""
    inputs = sum(name.startswith("example_inputs") for name in names)
    parts = list(dict.fromkeys(_named(n) for n in names if not n.startswith("example_inputs")))
    if inputs:
        parts.append(f"{counted(inputs, 'input')} (shape, stride or dtype)")
    return few(parts, _MOST)


def _named(name: str) -> str:
    match = _PART.match(name)
    if match is None:
        return name
    if match["name"] in _GROUPS:
        return f"{_GROUPS[match['name']]} {match['of'] or '?'}"
    return _NAMES.get(match["name"], match["name"].strip("_").replace("_", " "))


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
_MOST_LOOKUPS = 2_000
_PARTS = 2_000_000  # of all keys together: about 200 MB


def lookups_in(folder: str) -> list[Lookup]:
    """All lookups of one record, oldest first. Raises OSError, RecordError."""
    with Folder(folder) as opened:
        data = content(opened)
    lookups: list[Lookup] = []
    first: dict[str, Mapping[str, str]] = {}
    room = _PARTS
    for line in data.splitlines():
        if b'"event":"cache"' in line and len(lookups) < _MOST_LOOKUPS and room > 0:
            try:
                entry = parse(line)
                if isinstance(entry, CacheLookup):
                    lookups.append(copied(entry, Lookup, hashes=_hashes(entry, first)))
                    room -= len(lookups[-1].hashes)
            except ValueError:
                continue  # no agent writes this
    return lookups


def _hashes(entry: CacheLookup, first: dict[str, Mapping[str, str]]) -> Mapping[str, str]:
    """Raises ValueError if they cannot be unpacked."""
    if entry.packed is None:
        return {}
    unpacked = _unpacked(entry.packed)
    if entry.whole:
        first[entry.cache] = unpacked
        return unpacked
    merged = {**first.get(entry.cache, {}), **unpacked}
    return {name: short for name, short in merged.items() if short != "-"}


def _unpacked(packed: str) -> dict[str, str]:
    """Raises ValueError."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(base64.b64decode(packed, validate=True), _UNPACKED)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof:
        raise ValueError("larger than any agent's, or cut")
    pairs = (line.rpartition(" ") for line in data.decode("ascii").split("\n"))
    return {name: short for name, _, short in pairs if name and name.isprintable()}


def misses(
    readings: Sequence[RecordReading], read: Callable[[str], list[Lookup]]
) -> Iterator[Miss]:
    """The misses in the latest start of each run among ``readings``, rank by rank."""
    for run in sorted({reading.slot.identity.run for reading in readings}):
        of_run = [item for item in readings if item.slot.identity.run == run]
        yield from _of_run(run, of_run, read)


def _of_run(
    run: str, readings: Sequence[RecordReading], read: Callable[[str], list[Lookup]]
) -> Iterator[Miss]:
    newest = max(readings, key=lambda reading: reading.began)
    latest = [reading for reading in readings if reading.start == newest.start]
    by_rank = {
        reading.slot.identity.rank: reading
        for reading in sorted(latest, key=lambda item: item.began)
    }
    lookups = {rank: read(reading.folder) for rank, reading in sorted(by_rank.items())}
    for rank in lookups:
        before = _before(readings, by_rank[rank])
        others = [(f"rank {other}'s", lookups[other]) for other in lookups if other != rank]
        if before is not None:
            others.append((_BEFORE, read(before.folder)))
        for place, lookup in enumerate(lookups[rank]):
            if lookup.verdict == "hit":
                continue
            miss = _compared(run, rank, lookup, _same_lookup(lookups[rank], place, others))
            if miss.differing is not None or not _is_explained_elsewhere(lookup, lookups[rank]):
                yield miss


def _is_explained_elsewhere(lookup: Lookup, lookups: Sequence[Lookup]) -> bool:
    """Whether another cache missed in the same compilation and reports its key's parts."""
    same = (other for other in lookups if other.id == lookup.id and other.cache != lookup.cache)
    return lookup.verdict == "miss" and not lookup.hashes and any(other.hashes for other in same)


def _before(readings: Sequence[RecordReading], reading: RecordReading) -> RecordReading | None:
    """The same rank of the previous start; ``None`` if its record is gone."""
    rank = reading.slot.identity.rank
    earlier = [
        item for item in readings if item.slot.identity.rank == rank and item.began < reading.began
    ]
    return max(earlier, key=lambda value: value.began, default=None)


def _same_lookup(
    own: Sequence[Lookup], place: int, others: Sequence[tuple[str, list[Lookup]]]
) -> Other | None:
    """The first lookup of the others in the same cache for the same compilation.

    Matched by its id, and within one id (a forward and its backward share it) by order.
    """
    which = (own[place].cache, own[place].id)
    turn = sum((lookup.cache, lookup.id) == which for lookup in own[:place])
    for whose, lookups in others:
        same = [
            lookup
            for lookup in lookups
            if (lookup.cache, lookup.id) == which and lookup.verdict != "bypass"
        ]
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
