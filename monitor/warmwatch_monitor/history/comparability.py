"""Which earlier runs a run may be compared with, and which serve its estimates. Pure.

Two questions, apart: whether it compiles the same under the same conditions, so that it will take
as long; and whether it is the same training at all, so that a difference is worth a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from warmwatch_monitor.model import Done, Precedent
from warmwatch_monitor.model.run_summary import (
    Compiled,
    Provenance,
    RankSummary,
    RunSummary,
    Wrapping,
)


class Known(Struct, frozen=True, kw_only=True):
    """What is known of a run by the time at which it is compared; as an Account has it."""

    run: str
    owner: str | None = None
    host: str | None = None
    what: Provenance = Provenance()
    names: frozenset[str] = field(default_factory=frozenset)


def known_of(account: RunSummary) -> Known:
    """The same of one that is remembered. ``names``: of the functions that were compiled."""
    names = {one.name for rank in account.ranks for one in rank.compiled if one.name}
    return Known(
        run=called(account),
        owner=account.owner,
        host=account.host,
        what=account.what,
        names=frozenset(names),
    )


def called(account: RunSummary) -> str:
    """The run's name as its owner has it."""
    return account.run.removesuffix(f"@{account.owner}")


def is_comparable(now: Known, before: RunSummary) -> bool:
    """Whether it is the same training on the same machines, whatever else changed since."""
    mine, other = now.what, before.what
    named = now.run == called(before) or (mine.script is not None and mine.script == other.script)
    theirs = known_of(before).names
    return (
        named
        and not _differ(now.owner, before.owner)
        and not _differ(mine.script, other.script)
        and set(mine.gpus) == set(other.gpus)  # a rank tells of its own, an Account of all
        and mine.world_size == other.world_size
        and _is_asked_alike(mine.wrappings, other.wrappings)
        and not (now.names and theirs and now.names.isdisjoint(theirs))
    )


def is_alike(now: Known, before: RunSummary) -> bool:
    """Whether it takes as long to compile there as it did then."""
    mine, other = now.what, before.what
    return (
        is_comparable(now, before)
        and mine.torch == other.torch
        and not _differ(mine.triton, other.triton)
        and _same_caches(mine.caches, other.caches)
        and not _differ(mine.compile_threads, other.compile_threads)
        and (bool(mine.gpus) or now.host == before.host)  # without GPUs the host is the device
    )


def _same_caches(mine: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Cold or warm alike: of Triton's nothing is known until somebody has imported it."""
    shared = mine.keys() & other.keys()
    return "inductor" in shared and all(mine[name] == other[name] for name in shared)


def precedent(account: RunSummary, rank: int) -> Precedent | None:
    """The first warm-up of ``rank``, else of the first one; ``None`` where it did not end."""
    ranks = {one.rank: one for one in account.ranks}
    one = ranks.get(rank) or ranks.get(min(ranks, default=0))
    first = None if one is None else one.answer.get("warmup", {}).get("first")
    if one is None or not first or not first.get("seconds"):
        return None
    until = first["ended_at"] + _LATE
    compiled = [_done(each) for each in one.compiled if each.ended <= until]
    later = [each for each in one.compiled if each.ended > until]
    return Precedent(
        seconds=first["seconds"],
        phase_seconds=_phases(one, later, first["seconds"]),
        compiled=None if one.left_out else tuple(compiled),
        later=tuple(_done(each) for each in later),
    )


_LATE = 0.1  # seconds: the line of a compilation may come after the end of its activity


def _phases(one: RankSummary, later: Iterable[Compiled], seconds: float) -> Mapping[str, float]:
    """Of the first warm-up: all that was spent, less what came after it."""
    spent = dict(one.answer.get("compile", {}).get("phase_seconds") or {})
    for each in later:
        for name, took in each.phase_seconds.items():
            spent[name] = max(0.0, spent.get(name, 0.0) - took)
    whole = sum(spent.values())
    shrink = min(1.0, seconds / whole) if whole else 1.0  # phases of the two are told apart
    return {name: took * shrink for name, took in spent.items() if took}


def _done(one: Compiled) -> Done:
    return Done(kind=one.kind, name=one.name, code=one.code, cache=one.cache, seconds=one.seconds)


def _is_asked_alike(mine: Iterable[Wrapping], other: Iterable[Wrapping]) -> bool:
    """A run may have called ``torch.compile`` only once of the times that it is going to."""
    one, two = _ways(mine), _ways(other)
    return bool(one) == bool(two) and (one <= two or two <= one)


def _ways(wrappings: Iterable[Wrapping]) -> set[tuple[object, ...]]:
    """How ``torch.compile`` was called, however often."""
    return {(w.mode, w.backend, w.dynamic, w.fullgraph, w.options) for w in wrappings}


def _differ(one: object, other: object) -> bool:
    """Both are known, and not the same."""
    return one is not None and other is not None and one != other
