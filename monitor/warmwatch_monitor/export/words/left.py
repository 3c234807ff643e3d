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
    before = _before(known, view.figures)
    if known.left_seconds is None:
        return f"longer than {before[0]} ({before[1]})"
    return f"{before[0]} {before[1]}: about {duration(known.left_seconds)} left{_spread(known)}"


def _before(known: Estimate, figures: Figures) -> tuple[str, str]:
    """Who took how long. The warm-up is named where the sentence speaks of a part of it."""
    who = "another rank" if known.of_rank else "last time"
    said, took = figures.progress.open_seconds, duration(known.last_seconds)
    if known.of == "warmup" and said is not None and known.so_far_seconds - said > _SAME_SECONDS:
        return f"the whole warm-up {'on' if known.of_rank else ''} {who}".replace("  ", " "), took
    return who, took


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
