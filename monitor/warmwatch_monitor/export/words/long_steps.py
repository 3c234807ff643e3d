"""A step that came far later than usual and did not compile: what the time went to. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.words.wording import counted, exact_length, step_length
from warmwatch_monitor.model import Figures, LongStep

_SHARE = 0.1  # of the step: what is less does not explain it
_MOSTLY = 0.5
_MORE_BATCHES = 3


def words(one: LongStep) -> str:
    """``step 400 came after 41.0 s, 36 ms are usual: 38.0 s of it saving a checkpoint``."""
    head = f"step {one.step} came after {exact_length(one.seconds)}"
    usual = f", {step_length(one.usual_seconds)} are usual"
    return f"{head}{usual}: {', '.join(_causes(one))}"


def is_evaluation(one: LongStep) -> bool:
    """Whether it was told, or far more batches were handed out in it than in a usual step."""
    if one.evaluating_seconds:
        return True
    if one.batches is None or one.batches_usual is None:
        return False
    return one.batches >= _MORE_BATCHES * max(1.0, one.batches_usual)


def _causes(one: LongStep) -> Iterator[str]:
    explained = one.usual_seconds
    for seconds, what in (
        (one.saving_seconds, "saving a checkpoint"),
        (one.evaluating_seconds, "evaluating"),
        (one.between_cells_seconds, "between the cells of a notebook"),
        (one.data_seconds or 0.0, "waiting for data"),
    ):
        if seconds >= _SHARE * one.seconds:
            explained += seconds
            yield f"{exact_length(seconds)} of it {what}"
    if is_evaluation(one) and not one.evaluating_seconds:
        yield f"{counted(one.batches or 0, 'batch', 'batches')} in it: an evaluation?"
    elif explained <= _MOSTLY * one.seconds:
        rest = "the rest" if explained > one.usual_seconds else "it"
        yield f"nothing compiled, and what {rest} went to is not known"


def evidence(figures: Figures) -> Iterator[str]:
    """The last of them, and the longest where that is another one."""
    told = figures.log.long_steps
    if not told:
        return
    yield words(told[-1])
    longest = max(told, key=lambda one: one.seconds)
    if longest.step != told[-1].step:
        yield f"the longest of them: {words(longest)}"
