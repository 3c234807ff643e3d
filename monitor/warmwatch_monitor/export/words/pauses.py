"""What keeps a rank from its steps and is no compilation: saving, data. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.words.wording import duration
from warmwatch_monitor.model import RankView

_WORTH_SAYING = 1.0  # seconds that a save in progress has taken
_IN_SUM = 0.1


def saving(view: RankView) -> str:
    """``saving a checkpoint for 43 s``; empty where it does not, or has only just begun."""
    seconds = view.figures.pauses.saving_for_seconds
    if seconds is None or seconds < _WORTH_SAYING or not view.living:
        return ""
    return f"saving a checkpoint for {duration(seconds)}"


def evidence(view: RankView) -> Iterator[str]:
    """Where the time went that was neither compiled nor trained, each as far as it is known."""
    if now := saving(view):
        yield f"{now}: no step is to be expected meanwhile"
    pauses, steps = view.figures.pauses, view.figures.steps
    spent = {
        "waiting for data": steps.batch_wait_seconds if steps.batches else None,
        "saving checkpoints": pauses.saving_seconds,
    }
    known = [(what, s) for what, s in spent.items() if s is not None and s >= _IN_SUM]
    if known:
        parts = [f"{duration(seconds)} went to {what}" for what, seconds in known]
        yield f"since it attached {', '.join(parts)}"
