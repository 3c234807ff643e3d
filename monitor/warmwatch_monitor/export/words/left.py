"""How long what compiles may take yet, in words: nothing where nothing like it is known. Pure."""

from __future__ import annotations

from warmwatch_monitor.export.words.wording import counted, duration
from warmwatch_monitor.model import Estimate, Figures, RankView

_SAME_SECONDS = 1.0  # two clocks that differ by less are one to a reader
_WORTH_SAYING = 0.2  # of the rest, by which precedents differ


def left(view: RankView) -> str:
    """``last time 113 s: about 40 s left``; ``longer than last time (113 s)`` beyond all of it."""
    known = view.estimate
    if known is None or not view.judgement.compiling:
        return ""
    took = duration(known.last_seconds)
    if known.left_seconds is None:
        whole = "the whole warm-up takes " if _is_part(known, view.figures) else ""
        return f"{whole}longer than {'another rank' if known.of_rank else 'last time'} ({took})"
    before = _before(known, _is_part(known, view.figures))
    return f"{before} {took}: about {duration(known.left_seconds)} left{_spread(known)}"


def _before(known: Estimate, part: bool) -> str:
    if known.of_rank:
        return f"{'the whole warm-up of ' if part else ''}another rank took"
    return "last time the whole warm-up took" if part else "last time"


def _is_part(known: Estimate, figures: Figures) -> bool:
    """Whether the time that the sentence says is that of a part of what the estimate is of."""
    said = figures.progress.open_seconds
    return known.of == "warmup" and said is not None and known.so_far_seconds - said > _SAME_SECONDS


def _spread(known: Estimate) -> str:
    low, high, middle = known.low, known.high, known.left_seconds
    if low is None or high is None or not middle or high - low < _WORTH_SAYING * middle:
        return ""
    return f" ({duration(low)} to {duration(high)})"


def slower_than_before(figures: Figures) -> str:
    """``warm-up took 31 min, 4 min last time``."""
    first, earlier = figures.warmups.first, figures.warmups.earlier_seconds
    if first is None or not earlier:
        return "warm-up took far longer than in earlier runs"
    most = f", {duration(max(earlier))} at most" if max(earlier) > earlier[0] else ""
    runs = f" (of {counted(len(earlier), 'run')} like it{most})" if len(earlier) > 1 else ""
    return f"warm-up took {duration(first.seconds)}, {duration(earlier[0])} last time{runs}"
