"""What a state alone does not say (see ``verdict.CONDITIONS``), each in one clause. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from warmwatch.verdict import THRASHING_STEPS, THRASHING_WINDOW
from warmwatch_monitor.export.words.asked import cudagraph_skipped, never_compiled
from warmwatch_monitor.export.words.hangs import long_compile, too_long
from warmwatch_monitor.export.words.left import slower_than_before
from warmwatch_monitor.export.words.remedy import remedy
from warmwatch_monitor.export.words.wording import counted, own_words
from warmwatch_monitor.model import Figures, RankView


def conditions(view: RankView) -> list[tuple[str, str]]:
    """Name and clause of every condition that holds for ``view``, in the verdict's order."""
    return [(name, _words(name, view)) for name in view.judgement.conditions]


def beside(view: RankView) -> list[tuple[str, str]]:
    """The same, put behind a sentence that has said for how long ``view`` has been compiling."""
    return [
        (name, too_long(view) if name == "long_compile" else _words(name, view))
        for name in view.judgement.conditions
    ]


def _words(name: str, view: RankView) -> str:
    return long_compile(view) if name == "long_compile" else _WORDS[name](view.figures)


def _thrashing(figures: Figures) -> str:
    touched = figures.steps.touched_lately
    if touched is None:
        return f"thrashing: {THRASHING_STEPS} or more of the last {THRASHING_WINDOW} steps compiled"
    last = min(THRASHING_WINDOW, figures.steps.count)
    reasons = Counter(c.category for c in figures.log.compilations if c.category)
    lead = f", mostly for {reasons.most_common(1)[0][0]}" if reasons else ""
    remedies = (remedy(one) for one in reversed(figures.log.varying))
    because = next((f" ({words})" for words in remedies if words), "")
    return f"thrashing: {touched} of the last {last} steps compiled{lead}{because}"


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


def nothing_captured(figures: Figures) -> str:
    """``Dynamo captured nothing (3 graph breaks: ...): this is eager speed``.

    Where each compilation failed there was something to capture, so that is said instead.
    """
    breaks = _breaks(figures)
    failures = figures.compile.failures or 0
    if failures and failures >= (figures.compile.compilations or {}).get("forward", 0):
        also = f"; {breaks}" if breaks else ""
        return (
            f"every compilation failed ({failures}{_failure(figures)}{also}): this is eager speed"
        )
    because = [breaks, f"{counted(failures, 'compilation')} failed" if failures else ""]
    known = "; ".join(filter(None, because))
    return f"Dynamo captured nothing{f' ({known})' if known else ''}: this is eager speed"


def _breaks(figures: Figures) -> str:
    breaks = figures.compile.graph_breaks
    if not breaks:
        return ""
    known = figures.log.breaks
    lead = ": " if len(known) == 1 else ", the first: "  # others may have another reason
    first = f"{lead}{own_words(known[0].reason, 60)}" if known else ""
    return f"{counted(breaks, 'graph break')}{first}"


def _failure(figures: Figures) -> str:
    """``: BackendCompilerFailed``, the last that is known."""
    names = [one.failure for one in figures.log.compilations if one.failure]
    return f": {names[-1].rpartition('.')[2]}" if names else ""


_WORDS: dict[str, Callable[[Figures], str]] = {
    "thrashing": _thrashing,
    "fallback": _fallback,
    "unknown": _unknown,
    "nothing_captured": nothing_captured,
    "never_compiled": never_compiled,
    "cudagraph_skipped": cudagraph_skipped,
    "slower_than_before": slower_than_before,
}
