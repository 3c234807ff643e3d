"""How far apart the ranks of a run are in one figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from warmwatch_monitor.model.snapshot import RankView


class Spread(Struct, frozen=True, kw_only=True):
    """The least and the greatest value of a figure, and whose they are."""

    least: float
    least_rank: int
    greatest: float
    greatest_rank: int


def spread(ranks: Iterable[RankView], read: Callable[[RankView], float | None]) -> Spread | None:
    """That of ``read`` over ``ranks``; ``None`` where fewer than two of them know it."""
    known = [(value, view.rank) for view in ranks if (value := read(view)) is not None]
    if len(known) < 2:
        return None
    (least, least_rank), (greatest, greatest_rank) = min(known), max(known)
    return Spread(
        least=least, least_rank=least_rank, greatest=greatest, greatest_rank=greatest_rank
    )
