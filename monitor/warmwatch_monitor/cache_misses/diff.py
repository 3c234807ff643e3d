"""Cache-miss diff: how a key differs from another rank's, or an earlier run's.

Pure, except that ``read`` reads the journals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from warmwatch_monitor.cache_misses.cache_keys import Lookup, Miss, Other
from warmwatch_monitor.model import RecordReading


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
