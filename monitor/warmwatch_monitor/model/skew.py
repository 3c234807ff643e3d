"""How the ranks of a run differ: the spread of a figure, and the rank that holds the others up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from warmwatch_monitor.model.machine import HARMLESS
from warmwatch_monitor.model.snapshot import RankView

_SLOW = 1.1  # times the median step of the other ranks
_LOCKSTEP = 2  # so few steps apart, ranks wait for each other: none of them is slower
_CLOCKED, _CAPPED, _WAITING = 0.9, 0.95, 0.1  # of the others' clock and limit; beyond their share


class Spread(Struct, frozen=True, kw_only=True):
    """The least and the greatest value of a figure, and their ranks."""

    least: float
    least_rank: int
    greatest: float
    greatest_rank: int


def spread(ranks: Iterable[RankView], read: Callable[[RankView], float | None]) -> Spread | None:
    """The spread of ``read`` over ``ranks``; ``None`` if fewer than two ranks have a value."""
    known = [(value, view.rank) for view in ranks if (value := read(view)) is not None]
    if len(known) < 2:
        return None
    (least, least_rank), (greatest, greatest_rank) = min(known), max(known)
    return Spread(
        least=least, least_rank=least_rank, greatest=greatest, greatest_rank=greatest_rank
    )


class SlowRank(NamedTuple):
    """A rank whose steps are longer than those of the others.

    Attributes:
        ratio: of its step to the median of the others. causes: as of :func:`causes`.
    """

    rank: int
    ratio: float
    causes: tuple[str, ...]


def slow_rank(ranks: Sequence[RankView]) -> SlowRank | None:
    """The rank with the longest recent step, if that is clearly longer than the others'.

    Ranks in lockstep are not compared: a difference is that of their step marks. The one that the
    others wait for is found by :func:`with_laggard`.
    """
    known = [(length, view) for view in ranks if (length := view.figures.steps.length)]
    if len(known) < 2 or len(known) < len(ranks):
        return None
    longest, slow = max(known, key=lambda pair: pair[0])
    others = [(length, view) for length, view in known if view is not slow]
    ratio = longest / median(length for length, _ in others)
    apart = median(view.figures.steps.count for _, view in others) - slow.figures.steps.count
    if ratio < _SLOW or abs(apart) <= _LOCKSTEP:
        return None
    return SlowRank(slow.rank, ratio, tuple(causes(slow, [view for _, view in others])))


def with_laggard(ranks: Sequence[RankView]) -> tuple[RankView, ...]:
    """``ranks``, with the one that all others wait for in collectives named, if there is one."""
    living = [one for one in ranks if one.living]
    others = [one for one in living if not _waits(one)]
    if len(others) != 1 or len(living) < 2:
        return tuple(ranks)
    (last,) = others
    why = f", which {last.limited_by.verdict} limits" if last.limited_by else ""
    differs = tuple(causes(last, [one for one in living if one is not last]))
    waits = f"waits for rank {last.rank}{why}"
    more = len(living) - 1
    waiting = "other rank waits" if more == 1 else f"other {more} ranks wait"
    holds = f"the {waiting} for rank {last.rank}"

    def named(one: RankView) -> RankView:
        known = one.limited_by
        if known is None or not one.living:
            return one
        words = (*known.evidence, holds) if one is last else (waits, *known.evidence)
        return replace(one, limited_by=replace(known, evidence=(*words, *differs)))

    return tuple(map(named, ranks))


def _waits(view: RankView) -> bool:
    """Whether it waits in collectives most of the time."""
    return view.limited_by is not None and view.limited_by.verdict == "communication"


def causes(slow: RankView, others: Sequence[RankView]) -> Iterator[str]:
    """Why ``slow`` may be slower than ``others``: differences of its GPUs and of its input."""
    whose = f"of rank {slow.rank}"
    for read, least, unit, what in (
        (_clock, _CLOCKED, "MHz", "GPU clock"),
        (_power_limit, _CAPPED, "W", "GPU power limit"),
    ):
        own, usual = read(slow), _median(map(read, others))
        if own and usual and own < least * usual:
            yield f"{what} {whose} {own:.0f} {unit} ({usual:.0f} in others)"
    reasons = _reasons(slow).difference(*map(_reasons, others))
    if reasons:
        yield f"GPU {whose} throttled ({', '.join(sorted(reasons))})"
    own, usual = _processes(slow), _median(map(_processes, others))
    if own is not None and usual is not None and own > usual:
        yield f"another process on the GPU {whose}"
    own, usual = _waiting(slow), _median(map(_waiting, others))
    if own is not None and usual is not None and own > usual + _WAITING:
        share = f"{100 * own:.0f} % of its time ({100 * usual:.0f} in others)"
        yield f"rank {slow.rank} waits for batches {share}"


def _median(values: Iterable[float | None]) -> float | None:
    """``None`` if any value is unknown."""
    known = list(values)
    return median(one for one in known if one is not None) if known and None not in known else None


def _clock(view: RankView) -> float | None:
    """MHz of the slowest of its GPUs' SMs."""
    known = [hertz for gpu in view.gpus if (hertz := dict(gpu.clocks_hertz).get("sm"))]
    return min(known) / 1e6 if known else None


def _power_limit(view: RankView) -> float | None:
    return min((gpu.power_limit_watts for gpu in view.gpus if gpu.power_limit_watts), default=None)


def _reasons(view: RankView) -> set[str]:
    held = {name for gpu in view.gpus for name, holds in gpu.throttled if holds}
    return held - HARMLESS


def _processes(view: RankView) -> float | None:
    known = [len(gpu.processes) for gpu in view.gpus if gpu.processes is not None]
    return max(known, default=None)


def _waiting(view: RankView) -> float | None:
    """The share of its time since step 1 in which it waited for batches."""
    steps = view.figures.steps
    if steps.batch_wait_seconds is None or steps.first_at is None or steps.last_at is None:
        return None
    took = steps.last_at - steps.first_at
    return min(1.0, steps.batch_wait_seconds / took) if took > 0 else None
