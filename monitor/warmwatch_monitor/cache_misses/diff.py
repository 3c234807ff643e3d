"""Cache-miss diff: how a key differs from another rank's, or an earlier run's.

Pure, except that ``read`` reads the journals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from warmwatch_monitor.cache_misses.cache_keys import Asked, Miss, Other
from warmwatch_monitor.model import RecordReading


def misses(readings: Sequence[RecordReading], read: Callable[[str], list[Asked]]) -> Iterator[Miss]:
    """The misses in the latest start of each run among ``readings``, rank by rank."""
    for run in sorted({reading.slot.identity.run for reading in readings}):
        of_run = [one for one in readings if one.slot.identity.run == run]
        yield from _of_run(run, of_run, read)


def _of_run(
    run: str, readings: Sequence[RecordReading], read: Callable[[str], list[Asked]]
) -> Iterator[Miss]:
    newest = max(readings, key=lambda one: one.began)
    latest = [one for one in readings if one.start == newest.start]
    by_rank = {one.slot.identity.rank: one for one in sorted(latest, key=lambda one: one.began)}
    asked = {rank: read(one.folder) for rank, one in sorted(by_rank.items())}
    for rank in asked:
        before = _before(readings, by_rank[rank])
        others = [(f"rank {other}'s", asked[other]) for other in asked if other != rank]
        if before is not None:
            others.append(("the run's before", read(before.folder)))
        for place, one in enumerate(asked[rank]):
            if one.verdict == "hit":
                continue
            found = _compared(run, rank, one, _same_question(asked[rank], place, others))
            if found.differing is not None or not _told_better(one, asked[rank]):
                yield found


def _told_better(one: Asked, asked: Sequence[Asked]) -> bool:
    """Whether another cache missed in the same compilation and reports its key's parts."""
    same = (other for other in asked if other.id == one.id and other.cache != one.cache)
    return one.verdict == "miss" and not one.hashes and any(other.hashes for other in same)


def _before(readings: Sequence[RecordReading], of: RecordReading) -> RecordReading | None:
    """The same rank of the previous start; ``None`` if its record is gone."""
    rank = of.slot.identity.rank
    earlier = [one for one in readings if one.slot.identity.rank == rank and one.began < of.began]
    return max(earlier, key=lambda one: one.began, default=None)


def _same_question(
    own: Sequence[Asked], place: int, others: Sequence[tuple[str, list[Asked]]]
) -> Other | None:
    """The first lookup of the others in the same cache for the same compilation.

    Matched by its id, and within one id (a forward and its backward share it) by order.
    """
    which = (own[place].cache, own[place].id)
    turn = sum((one.cache, one.id) == which for one in own[:place])
    for whose, asked in others:
        same = [one for one in asked if (one.cache, one.id) == which and one.verdict != "bypass"]
        if turn < len(same):
            return Other(whose=whose, asked=same[turn])
    return None


def _compared(run: str, rank: int, asked: Asked, other: Other | None) -> Miss:
    if other is None or asked.verdict == "bypass":
        return Miss(run=run, rank=rank, asked=asked)
    return Miss(run=run, rank=rank, asked=asked, other=other, differing=_differing(asked, other))


def _differing(asked: Asked, other: Other) -> tuple[str, ...] | None:
    mine, theirs = asked.hashes, other.asked.hashes
    if asked.key is not None and asked.key == other.asked.key:
        return ()
    if not mine or not theirs:
        return None
    return tuple(
        name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)
    )
