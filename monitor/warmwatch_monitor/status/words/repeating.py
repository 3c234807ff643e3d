"""A function that recompiles, or fails to compile, in every step: in words, and what helps."""

from __future__ import annotations

from warmwatch.shared.advice import MADE_ANEW, advice_for
from warmwatch.shared.phrases import called_from, duration, place
from warmwatch.shared.reasons import plain
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.model import Compilation, Figures
from warmwatch_monitor.output.amounts import own_words

_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def repeating(figures: Figures) -> str:
    """``recompiles in every step (7th time): `loss` (train.py:5): the length of `buf` is ...``.

    Empty if nothing does, or the journal does not say what.
    """
    known = _latest(figures)
    if known is None:
        return ""
    head, why = repeating_head(figures), why_repeating(figures)
    return f"{head}: {why}" if why else head


def repeating_head(figures: Figures) -> str:
    """``recompiles in every step (7th time): `loss` (train.py:5)``; empty if nothing does."""
    if (one := _latest(figures)) is None:
        return ""
    named = _named(figures, one)
    time = f"({_ordinal(one.in_a_row)} time)"
    if one.failure:
        return f"compiling {named or 'a function'} fails in every step {time}"
    return f"recompiles in every step {time}{f': {named}' if named else ''}"


def why_repeating(figures: Figures) -> str:
    """Why it recompiles, or how it fails and what that costs; empty if unknown."""
    if (one := _latest(figures)) is None:
        return ""
    if one.failure:
        cost = _cost(figures, one)
        each = f"; {duration(cost)} a step are failed compilations" if cost else ""
        return f"{failure(one.failure, one.failure_reason)}{each}"
    if one.category:
        words = plain(one.reason, one.category, one.of_class) or own_words(one.reason or "")
        return (words or one.category) + called_from(one.caller)
    return "torch._dynamo.reset() dropped what was compiled"


def remedy_of_repeating(figures: Figures) -> str | None:
    """What to do about it; ``None`` if no remedy is known."""
    if (one := _latest(figures)) is None:
        return None
    if one.failure:
        return remedy_of_failure(one.name, one.failure_hint)
    return remedy_of_recompile(one)


def remedy_of_recompile(one: Compilation) -> str | None:
    """What helps against a recompile after the warm-up, or in every step."""
    if one.category and not (one.category == NEW_INSTANCE and one.in_a_row >= REPEATED_STEPS):
        late = one.after_warm or one.in_a_row >= REPEATED_STEPS
        return advice_for(one, after_warm=late)
    if one.in_a_row < REPEATED_STEPS:
        return None
    if one.category == NEW_INSTANCE:
        return MADE_ANEW
    return "Do not call torch._dynamo.reset() in the loop."


def remedy_of_failure(name: str | None, hint: str | None) -> str:
    """``Stop compiling `loss`, or mend what fails. PyTorch's hint: use `torch.cond` ...``."""
    named = f"`{name}`" if name else "it"
    if hint:
        return f"Stop compiling {named}, or mend what fails. PyTorch's hint: {hint}"
    return f"Stop compiling {named}, or mend what fails: the exception has the message and place."


def failure(how: str | None, reason: str | None) -> str:
    """``Unsupported: Data-dependent branching``; the exception's type alone if no more is known."""
    name = (how or "").rpartition(".")[2]
    return f"{name}: {own_words(reason, 60)}" if reason else name


def _latest(figures: Figures) -> Compilation | None:
    """The last compilation that repeats, of the function with the longest row."""
    if not figures.steps.repeated:
        return None
    rows: dict[tuple[str | None, str | None, int | None], Compilation] = {}
    for one in figures.log.compilations:
        if one.in_a_row:
            rows[one.name, one.file, one.line] = one
    known = [one for one in rows.values() if one.in_a_row >= REPEATED_STEPS]
    return max(known, key=lambda one: one.in_a_row, default=None)


def _named(figures: Figures, one: Compilation) -> str:
    """Its function; PyTorch names none of a backward, which has the id of its forward."""
    if one.kind != "backward":
        return place(one.name, one.file, one.line)
    known = (of for of in reversed(figures.log.compilations) if of.id == one.id and of.name)
    forward = next(known, None)
    named = place(forward.name, forward.file, forward.line) if forward else ""
    return f"the backward of {named}" if named else "a backward"


def _cost(figures: Figures, of: Compilation) -> float | None:
    """Seconds of failed compilations in a step, as far as known; the first one takes longer."""
    known = [
        one
        for one in figures.log.compilations
        if (one.name, one.file, one.line) == (of.name, of.file, of.line)
        and one.failure
        and one.in_a_row > 1
        and one.seconds is not None
    ]
    steps = {one.in_a_row for one in known}
    return sum(one.seconds or 0.0 for one in known) / len(steps) if steps else None


def _ordinal(number: int) -> str:
    teen = 10 <= number % 100 <= 20
    return f"{number}{'th' if teen else _ENDINGS.get(number % 10, 'th')}"
