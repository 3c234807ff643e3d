"""Ranks of a run, and differences between them, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from warmwatch.shared.phrases import counted, took
from warmwatch_monitor.figures.rank import Spread
from warmwatch_monitor.model import REASONS
from warmwatch_monitor.output.amounts import consecutive, spans

_LISTED = 8  # ranges of ranks
# A difference in compile time is reported if it is this long and this large a share.
_APART_SECONDS, _APART_SHARE = 5.0, 0.2


def numbers(ranks: Sequence[int]) -> str:
    """Ranks for a reader: ``rank 3``, ``ranks 4-7, 12``."""
    return ranges(consecutive(ranks))


def ranges(parts: Sequence[range]) -> str:
    shown = spans(parts[:_LISTED], ", ")
    left_out = sum(map(len, parts[_LISTED:]))
    more = f" and {left_out} more" if left_out else ""
    return f"{'rank' if sum(map(len, parts)) == 1 else 'ranks'} {shown}{more}"


def compiled_longer(seconds: Spread | None, others: str) -> Iterator[str]:
    """``rank 5 compiled 57.8 s longer than rank 0``, if the difference is large."""
    gap = seconds.max - seconds.min if seconds else 0.0
    if seconds and gap >= max(_APART_SECONDS, _APART_SHARE * seconds.max):
        yield f"rank {seconds.max_rank} compiled {took(gap)} longer than {others}"


def differs(noun: str, count: Spread | None) -> Iterator[str]:
    """``3 graphs in rank 1, 2 in rank 0``, unless all ranks have as many."""
    if count and count.min != count.max:
        most = f"{counted(round(count.max), noun)} in rank {count.max_rank}"
        yield f"{most}, {round(count.min)} in rank {count.min_rank}"


def only_some(categories: Mapping[int, Set[str | None]]) -> Iterator[str]:
    """``only rank 5 recompiled (shape)``; ``categories``: of each rank's recompiles."""
    for category, ranks in some_ranks(categories):
        yield f"only {numbers(ranks)} recompiled ({category})"


def some_ranks(categories: Mapping[int, Set[str | None]]) -> Iterator[tuple[str, list[int]]]:
    """The categories for which some ranks recompiled, but not all, and these ranks."""
    for category in REASONS:
        ranks = [rank for rank, names in categories.items() if category in names]
        if ranks and len(ranks) < len(categories):
            yield category, ranks
