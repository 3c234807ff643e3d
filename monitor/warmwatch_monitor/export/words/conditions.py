"""What a state alone does not say: thrashing, fallback, unknown, each in one clause. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from warmwatch.verdict import THRASHING_STEPS, THRASHING_WINDOW
from warmwatch_monitor.export.words.wording import counted
from warmwatch_monitor.model import Figures, RankView


def conditions(view: RankView) -> list[tuple[str, str]]:
    """Name and clause of every condition that holds for ``view``, in the verdict's order."""
    return [(name, _WORDS[name](view.figures)) for name in view.judgement.conditions]


def _thrashing(figures: Figures) -> str:
    touched = figures.steps.touched_lately
    if touched is None:
        return f"thrashing: {THRASHING_STEPS} or more of the last {THRASHING_WINDOW} steps compiled"
    last = min(THRASHING_WINDOW, figures.steps.count)
    reasons = Counter(c.category for c in figures.log.compilations if c.category)
    lead = f", mostly for {reasons.most_common(1)[0][0]}" if reasons else ""
    return f"thrashing: {touched} of the last {last} steps compiled{lead}"


def _fallback(figures: Figures) -> str:
    total, known = figures.compile.fallbacks or 0, figures.log.fallbacks
    if not known:
        return f"{counted(total, 'frame')} hit the recompile limit: eager from then on"
    first = known[0]
    name = first.name or "a frame"
    limit = f" of {first.limit}" if first.limit is not None else ""
    more = total - 1
    others = f" (and {counted(more, 'other frame')})" if more > 0 else ""
    return f"{name} hit the recompile limit{limit}: eager since step {first.step + 1}{others}"


def _unknown(_figures: Figures) -> str:
    return "Inductor compiles aside (asynchronously): when it has ended cannot be seen"


_WORDS: dict[str, Callable[[Figures], str]] = {
    "thrashing": _thrashing,
    "fallback": _fallback,
    "unknown": _unknown,
}
