"""What to do about a dimension or a number that keeps changing, by what was seen of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.words.wording import duration, exact_length
from warmwatch_monitor.model import FEWEST_STEPS, Figures, VaryingDim

# Two values are what automatic dynamic shapes need to see, and then often nothing more comes.
_KEEPS_CHANGING = 3
_MOST = 3
_LEAST_DYNAMIC = 2  # PyTorch compiles 0 and 1 apart, of a dimension that is marked dynamic too


def remedy(one: VaryingDim) -> str | None:
    """``dim 1 of `tokens` took 9 values from 48 to 64; each cost 11 s: mark it dynamic, or pad to
    64``; ``None`` where it has not kept changing.

    Those that PyTorch tells no time of cost as much as the others.
    """
    if len(one.values) < _KEEPS_CHANGING or one.highest is None:
        return None
    number = f"{len(one.values)}" if one.complete else f"more than {len(one.values)}"
    cost = f"; each cost {duration(one.seconds / one.timed)}" if one.seconds and one.timed else ""
    took = f"`{one.tensor}` took {number} values from {one.lowest} to {one.highest}{cost}"
    if one.dim is None:
        return f"{took}: pass it as a tensor, or keep it out of the compiled function"
    if one.lowest is not None and one.lowest < _LEAST_DYNAMIC:
        return f"dim {one.dim} of {took}: pad to {one.highest}; marked dynamic, 0 and 1 stay apart"
    return f"dim {one.dim} of {took}: mark it dynamic, or pad to {one.highest}"


def since_seconds(one: VaryingDim) -> float | None:
    """Mean clean step since it first changed; ``None`` where too few are known."""
    return one.since_ns / one.since_steps / 1e9 if one.since_steps >= FEWEST_STEPS else None


def of_recompile(figures: Figures) -> str | None:
    """Of the dimension for which the warm-up now open was needed."""
    why = figures.log.reopened_by
    if why is None or why.id is None:
        return None
    return next((remedy(one) for one in figures.log.varying if one.last_id == why.id), None)


def evidence(figures: Figures) -> Iterator[str]:
    """Those that cost most, each with what clean steps took before and since where both are known.

    What padding or a dynamic shape costs shows there: it is said, and nobody is told which to take.
    """
    told = sorted(figures.log.varying, key=lambda one: -(one.seconds or 0.0))
    for one in [one for one in told if remedy(one)][:_MOST]:
        before, since = one.before_seconds, since_seconds(one)
        speeds = ""
        if before is not None and since is not None:
            speeds = (
                f" (a clean step took {exact_length(before)} before it changed, "
                f"{exact_length(since)} since)"
            )
        yield f"{remedy(one)}{speeds}"
