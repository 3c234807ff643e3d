"""What is known of a rank that is not yet sure of its speed: step, GPUs, and how long still. Pure.

A user who looks at "0 of 3 clean steps" with steps of ten seconds looks at it for half a minute.
Nothing is estimated before one clean step is known, nor where it would be over in a moment.
"""

from __future__ import annotations

from warmwatch_monitor.export.words import silicon
from warmwatch_monitor.export.words.wording import duration, exact_length, step_length
from warmwatch_monitor.model import RankView

_WORTH_SAYING = 1.0  # seconds: what is over sooner is noise


def so_far(view: RankView, naming: str = "") -> str:
    """``10.0 s, GPU 0 at 100 %, 692 W; sure in about 20 s``; empty where nothing is known.

    ``naming`` stands before the length of a step, where the words around do not say what it is.
    """
    length = _last_clean(view)
    step = f"{naming}{length}" if length else ""
    seen = ", ".join(part for part in (step, silicon.at_work(view.gpus)) if part)
    left = seconds_left(view)
    sure = "" if left is None else f"sure in about {duration(left)}"
    return "; ".join(part for part in (seen, sure) if part)


def seconds_left(view: RankView) -> float | None:
    """Until the rank is warm, if its steps go on as they do; ``None`` where nobody can say.

    The step under way has taken some of it already, or more than it should.
    """
    length = _length(view)
    needed = view.figures.warmups.clean_steps_needed - view.judgement.clean_steps
    if length is None or needed < 1:
        return None
    under_way = max(0.0, length - view.figures.progress.quiet_seconds)
    left = (needed - 1) * length + under_way
    return left if left >= _WORTH_SAYING else None


def _length(view: RankView) -> float | None:
    """Of the last clean step, else of those before the compiler came again."""
    steps = view.figures.steps
    last = steps.last_seconds if view.judgement.clean_steps else None
    return last if last is not None else steps.length


def _last_clean(view: RankView) -> str:
    steps = view.figures.steps
    if not view.judgement.clean_steps:
        return ""
    if steps.last_seconds is not None:
        return exact_length(steps.last_seconds)
    return "" if steps.length is None else step_length(steps.length)
