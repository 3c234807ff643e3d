"""A run's ranks beside each other: who is missing, how far apart they are, what they did otherwise.

Pure. Ranks that one host does not see are known to be missing, never assumed to be fine; what
differs between ranks is told once all of them are warm, since until then it must differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from warmwatch.record import CATEGORIES
from warmwatch_monitor.export import figures
from warmwatch_monitor.export.wording import counted, duration
from warmwatch_monitor.model import RankView, RunView

_LISTED = 8
# A difference in compile time is told of where it is this long and this large a share.
_APART_SECONDS = 5.0
_APART_SHARE = 0.2

Spread = dict[str, Any]


def world_size(run: RunView) -> int | None:
    """How many ranks the run has by its launcher; ``None`` where nobody said."""
    said = [view.reading.slot.identity.world_size for view in run.ranks if figures.is_living(view)]
    return max((size for size in said if size is not None), default=None)


def missing(run: RunView) -> list[int]:
    """The ranks that the run has and this host does not see."""
    seen = {view.rank for view in run.ranks}
    return [rank for rank in range(world_size(run) or 0) if rank not in seen]


def missing_words(run: RunView) -> str | None:
    """The ranks that are not seen here, in words; ``None`` where all are."""
    absent = missing(run)
    if not absent:
        return None
    total = world_size(run)
    are = "is" if len(absent) == 1 else "are"
    return f"{len(absent)} of {total} ranks ({numbers(absent)}) {are} not seen here"


def numbers(ranks: Sequence[int]) -> str:
    """Ranks for a reader: ``rank 3``, ``ranks 4-7, 12``."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], rank]
        else:
            parts.append([rank])
    shown = ", ".join("-".join(map(str, part)) for part in parts[:_LISTED])
    more = ", ..." if len(parts) > _LISTED else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}{more}"


def skew(run: RunView, now_ns: int) -> dict[str, Any] | None:
    """How far apart the ranks are; ``None`` where fewer than two tell."""
    ranks = run.ranks
    if len(ranks) < 2:
        return None
    return {
        "compile_seconds": _spread(ranks, partial(_compile_seconds, now_ns=now_ns)),
        "compilations": _spread(ranks, partial(_counted, count=_compilations)),
        "graphs": _spread(ranks, partial(_counted, count=_graphs)),
        "recompiles": _spread(ranks, partial(_counted, count=_recompiles)),
        "first_step_at": _spread(ranks, _first_step_at),
        "differences": differences(run, now_ns),
    }


def differences(run: RunView, now_ns: int) -> list[str]:
    """Where ranks compiled different things or took far longer than others, one sentence each."""
    living = [view for view in run.ranks if figures.is_living(view)]
    if len(living) < 2 or not all(view.judgement.warm for view in living):
        return []
    return [*_different(living), *_apart(living, now_ns)]


def _different(ranks: Sequence[RankView]) -> Iterable[str]:
    found = []
    for noun, count in (("graph", _graphs), ("recompile", _recompiles)):
        spread = _spread(ranks, partial(_counted, count=count))
        if spread is not None and spread["min"] != spread["max"]:
            most = f"{counted(spread['max'], noun)} in rank {spread['max_rank']}"
            found.append(f"{most}, {spread['min']} in rank {spread['min_rank']}")
    if found:
        yield f"ranks compiled different things: {'; '.join(found)}"
    for position, category in enumerate(CATEGORIES):
        hit = [view.rank for view in ranks if view.reading.slot.compile.recompiles[position]]
        if hit and len(hit) < len(ranks):
            yield f"only {numbers(hit)} recompiled for {category}"


def _apart(ranks: Sequence[RankView], now_ns: int) -> Iterable[str]:
    spread = _spread(ranks, partial(_compile_seconds, now_ns=now_ns))
    if spread is None:
        return
    gap = spread["max"] - spread["min"]
    if gap >= max(_APART_SECONDS, _APART_SHARE * spread["max"]):
        longest, least = spread["max_rank"], spread["min_rank"]
        yield f"rank {longest} compiled {duration(gap)} longer than rank {least}"


def _spread(ranks: Iterable[RankView], read: Callable[[RankView], float | None]) -> Spread | None:
    """The least and the greatest value and whose they are; ``None`` where fewer than two tell."""
    known = [(value, view.rank) for view in ranks if (value := read(view)) is not None]
    if len(known) < 2:
        return None
    (least, its), (greatest, whose) = min(known), max(known)
    return {"min": least, "min_rank": its, "max": greatest, "max_rank": whose}


def _counted(view: RankView, count: Callable[[RankView], int]) -> int | None:
    return count(view) if figures.tells(view.reading.slot, "compilations") else None


def _graphs(view: RankView) -> int:
    return view.reading.slot.compile.graphs


def _compilations(view: RankView) -> int:
    return figures.compilations(view.reading.slot.compile)


def _recompiles(view: RankView) -> int:
    return sum(view.reading.slot.compile.recompiles)


def _compile_seconds(view: RankView, now_ns: int) -> float:
    return sum(figures.phase_ns(view, now_ns)) / 1e9


def _first_step_at(view: RankView) -> float | None:
    slot = view.reading.slot
    first_ns = slot.compile.first_step_ns
    return slot.header.epoch_seconds(first_ns) if first_ns else None
