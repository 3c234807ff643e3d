"""What keeps a rank from its steps and is no compilation: saving, evaluating, data, its user."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.words.wording import duration
from warmwatch_monitor.model import RankView

_WORTH_SAYING = 1.0  # seconds that what is in progress has taken
_IN_SUM = 0.1


def pausing(view: RankView) -> str:
    """``saving a checkpoint for 43 s``, ``evaluating for 61 s``; empty where it does neither.

    Also where it has only just begun. A save within an evaluation comes first.
    """
    pauses = view.figures.pauses
    for what, seconds in (
        ("saving a checkpoint", pauses.saving_for_seconds),
        ("evaluating", pauses.evaluating_for_seconds),
        ("between the cells of a notebook", pauses.between_cells_for_seconds),
    ):
        if seconds is not None and seconds >= _WORTH_SAYING and view.living:
            return f"{what} for {duration(seconds)}"
    return ""


def evidence(view: RankView) -> Iterator[str]:
    """Where the time went that was neither compiled nor trained, each as far as it is known."""
    if now := pausing(view):
        yield f"{now}: no step is to be expected meanwhile"
    pauses, steps = view.figures.pauses, view.figures.steps
    spent = {
        "waiting for data": steps.batch_wait_seconds if steps.batches else None,
        "saving checkpoints": pauses.saving_seconds,
        "evaluating": pauses.evaluating_seconds,
    }
    known = [(what, s) for what, s in spent.items() if s is not None and s >= _IN_SUM]
    if known:
        parts = [f"{duration(seconds)} went to {what}" for what, seconds in known]
        yield f"since it attached {', '.join(parts)}"
