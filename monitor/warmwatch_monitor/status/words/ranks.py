"""A run's ranks in words: which are missing, and how they differ.

Pure. Ranks that one host does not see are known to be missing, never assumed to be fine; what
differs between ranks is reported once all of them are warm, since until then it must differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warmwatch_monitor.model import CATEGORIES, RankView, RunView, Spread, spread
from warmwatch_monitor.output.wording import counted, duration

_LISTED = 8
# A difference in compile time is reported if it is this long and this large a share.
_APART_SECONDS = 5.0
_APART_SHARE = 0.2
_ALSO = {"grad_mode": "compiled its evaluation"}


def missing(run: RunView) -> str | None:
    """The ranks that are not seen here, in words; ``None`` where all are."""
    absent = run.missing_ranges
    if not absent:
        return None
    count = sum(map(len, absent))
    are = "is" if count == 1 else "are"
    return f"{count} of {run.world_size} ranks ({_ranges(absent)}) {are} not seen here"


def numbers(ranks: Sequence[int]) -> str:
    """Ranks for a reader: ``rank 3``, ``ranks 4-7, 12``."""
    parts: list[range] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1].stop:
            parts[-1] = range(parts[-1].start, rank + 1)
        else:
            parts.append(range(rank, rank + 1))
    return _ranges(parts)


def _ranges(parts: Sequence[range]) -> str:
    shown = ", ".join(
        str(part.start) if len(part) == 1 else f"{part.start}-{part.stop - 1}"
        for part in parts[:_LISTED]
    )
    more = ", ..." if len(parts) > _LISTED else ""
    return f"{'rank' if sum(map(len, parts)) == 1 else 'ranks'} {shown}{more}"


def differences(run: RunView) -> list[str]:
    """Where ranks compiled different things or took far longer than others, one sentence each."""
    living = run.living
    if len(living) < 2 or not all(view.judgement.warm for view in living):
        return []
    return [*_different(living), *_apart(living)]


def in_short(run: RunView) -> str | None:
    """The one difference that a sentence has room for; all of them are in :func:`differences`."""
    living = run.living
    if len(living) < 2 or not all(view.judgement.warm for view in living):
        return None
    return _also(living) or _slowest(living) or _other(living)


def _also(ranks: Sequence[RankView]) -> str | None:
    for category in CATEGORIES:
        hit = [view.rank for view in ranks if _recompiled_for(view, category)]
        if hit and len(hit) < len(ranks):
            also = _ALSO.get(category, f"recompiled for {category}")
            return f"{numbers(hit)} also {also}"
    return None


def _slowest(ranks: Sequence[RankView]) -> str | None:
    of = _gap(ranks)
    if of is None:
        return None
    gap, others = of.greatest - of.least, "the others" if len(ranks) > 2 else "the other"
    return f"rank {of.greatest_rank} compiled {duration(gap)} longer than {others}"


def _other(ranks: Sequence[RankView]) -> str | None:
    of = spread(ranks, lambda view: view.figures.compile.graphs)
    return _most_and_least("graph", of) if of and of.least != of.greatest else None


def _different(ranks: Sequence[RankView]) -> Iterable[str]:
    spreads = {
        "graph": spread(ranks, lambda view: view.figures.compile.graphs),
        "recompile": spread(ranks, lambda view: view.figures.compile.recompiles_total),
    }
    found = [_most_and_least(n, s) for n, s in spreads.items() if s and s.least != s.greatest]
    if found:
        yield f"ranks compiled different things: {'; '.join(found)}"
    for category in CATEGORIES:
        hit = [view.rank for view in ranks if _recompiled_for(view, category)]
        if hit and len(hit) < len(ranks):
            yield f"only {numbers(hit)} recompiled for {category}"


def _most_and_least(noun: str, of: Spread) -> str:
    most = f"{counted(round(of.greatest), noun)} in rank {of.greatest_rank}"
    return f"{most}, {round(of.least)} in rank {of.least_rank}"


def _recompiled_for(view: RankView, category: str) -> bool:
    return bool((view.figures.compile.recompiles or {}).get(category))


def _apart(ranks: Sequence[RankView]) -> Iterable[str]:
    if of := _gap(ranks):
        gap, longest = duration(of.greatest - of.least), of.greatest_rank
        yield f"rank {longest} compiled {gap} longer than rank {of.least_rank}"


def _gap(ranks: Sequence[RankView]) -> Spread | None:
    """How far apart their compile times are; ``None`` where that is not worth a word."""
    of = spread(ranks, lambda view: view.figures.compile.seconds)
    if of is None:
        return None
    gap = of.greatest - of.least
    return of if gap >= max(_APART_SECONDS, _APART_SHARE * of.greatest) else None
