"""What a state alone does not say: thrashing, fallback, unknown, each in one clause. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from warmwatch.verdict import THRASHING_STEPS, THRASHING_WINDOW, recently_touched
from warmwatch_monitor.export.wording import counted
from warmwatch_monitor.model import RankView


def conditions(view: RankView) -> list[tuple[str, str]]:
    """Name and clause of every condition that holds for ``view``, in the verdict's order."""
    return [(name, _WORDS[name](view)) for name in view.judgement.conditions]


def _thrashing(view: RankView) -> str:
    slot = view.reading.slot
    touched = len(recently_touched(slot.steps, slot.compile))
    last = min(THRASHING_WINDOW, slot.steps.steps)
    reasons = Counter(c.category for c in view.reading.compilations if c.category)
    lead = f", mostly for {reasons.most_common(1)[0][0]}" if reasons else ""
    if not touched:  # told by a Prometheus, which has no numbers of steps
        return f"thrashing: {THRASHING_STEPS} or more of the last {THRASHING_WINDOW} steps compiled"
    return f"thrashing: {touched} of the last {last} steps compiled{lead}"


def _fallback(view: RankView) -> str:
    known = view.reading.fallbacks
    if not known:
        frames = counted(view.reading.slot.compile.fallbacks, "frame")
        return f"{frames} hit the recompile limit: eager from then on"
    first = known[0]
    name = first.name or "a frame"
    limit = f" of {first.limit}" if first.limit is not None else ""
    more = view.reading.slot.compile.fallbacks - 1
    others = f" (and {counted(more, 'other frame')})" if more > 0 else ""
    return f"{name} hit the recompile limit{limit}: eager since step {first.step + 1}{others}"


def _unknown(_view: RankView) -> str:
    return "Inductor compiles aside (asynchronously): when it has ended cannot be seen"


_WORDS: dict[str, Callable[[RankView], str]] = {
    "thrashing": _thrashing,
    "fallback": _fallback,
    "unknown": _unknown,
}
