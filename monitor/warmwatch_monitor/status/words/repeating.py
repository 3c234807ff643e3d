"""A function that recompiles, or fails to compile, in every step: in words, and what helps."""

from __future__ import annotations

from collections.abc import Iterable

from warmwatch.shared.advice import MADE_ANEW, advice_for
from warmwatch.shared.breaks import break_remedy
from warmwatch.shared.phrases import called_from, duration, place
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.figures.compile import CompileTarget
from warmwatch_monitor.figures.units import total
from warmwatch_monitor.model import Compilation, Figures
from warmwatch_monitor.model.run_summary import Compiled
from warmwatch_monitor.output.amounts import failure, reason
from warmwatch_monitor.output.summary import Words, begin
from warmwatch_monitor.status.words.caching import dropped, remedy_of_dropped

_BREAK = "Unsupported"
_BREAKS = (_BREAK, "UserError", "GuardOnDataDependentSymNode")
# Exceptions of PyTorch's with one cause
_OF_EXCEPTION = {
    "RecompileError": (
        "Unset torch._dynamo.config.error_on_recompile, or keep what changed: the exception "
        "names the guard."
    ),
    "ConstraintViolationError": (
        "Mark the size with torch._dynamo.maybe_mark_dynamic in place of mark_dynamic, which fails "
        "if the code makes a constant of it: the exception names the size."
    ),
}
REMEDY_OF_SIZES = (
    "Pad inputs to a few sizes, or set "
    "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs, which runs dynamic graphs "
    "without CUDA graphs."
)
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def repeating(figures: Figures) -> Words | None:
    """``recompiles in every step (7th time): `loss` (train.py:5): the length of `buf` is ...``.

    ``None`` if nothing does, or the journal does not say what.
    """
    if (compilation := _latest(figures)) is None:
        return None
    short = "recompiles in every step"
    if compilation.new_sizes:
        short = "CUDA graphs begin again in every step"
    if compilation.failure:
        short = f"compiling {_named(figures, compilation) or 'a function'} fails in every step"
    whole = begin(repeating_head(figures), why_repeating(figures).text, ": ")
    return Words(whole.text, short)


def repeating_head(figures: Figures) -> str:
    """``recompiles in every step (7th time): `loss` (train.py:5)``; empty if nothing does."""
    if (compilation := _latest(figures)) is None:
        return ""
    named = _named(figures, compilation)
    time = f"({_ordinal(compilation.in_a_row)} time)"
    if compilation.failure:
        return f"compiling {named or 'a function'} fails in every step {time}"
    if compilation.new_sizes:
        whose = f" of {named}" if named else ""
        return f"CUDA graphs{whose} begin again in every step {time}"
    return f"recompiles in every step {time}{f': {named}' if named else ''}"


def why_repeating(figures: Figures) -> Words:
    """Why it recompiles, or how it fails and what that costs; empty if unknown."""
    if (compilation := _latest(figures)) is None:
        return begin("")
    if compilation.failure:
        cost = _cost(figures, compilation)
        each = f"{duration(cost)} a step are failed compilations" if cost else ""
        return begin(failure(compilation.failure, compilation.failure_reason), each)
    if compilation.new_sizes:
        return begin("each step has an input of a new size")
    if compilation.category:
        why = reason(compilation) or compilation.category
        return begin(why + called_from(compilation.caller))
    return begin(dropped(compilation) or "")


def remedy_of_repeating(figures: Figures) -> str | None:
    """What to do about it; ``None`` if no remedy is known."""
    compilation = _latest(figures)
    return None if compilation is None else remedy_of_compilation(compilation)


def remedy_of_compilation(
    compilation: Compilation, later: Iterable[CompileTarget] = ()
) -> str | None:
    """What helps against a failure, or a recompile after the warm-up or in every step.

    ``later``: what compiled after it, of any function.
    """
    if compilation.new_sizes:
        return REMEDY_OF_SIZES if compilation.in_a_row >= REPEATED_STEPS else None
    # the failure at the recompile limit (fullgraph=True) needs the remedy of what recompiles
    if compilation.failure and not compilation.at_limit:
        return remedy_of_failure(compilation)
    if compilation.category and not (
        compilation.category == NEW_INSTANCE and compilation.in_a_row >= REPEATED_STEPS
    ):
        late = compilation.after_warm or compilation.in_a_row >= REPEATED_STEPS
        own = (target for target in later if target.function == compilation.function)
        return advice_for(compilation, after_warm=late, later=own)
    if compilation.in_a_row < REPEATED_STEPS:
        return None
    if compilation.category == NEW_INSTANCE:
        return MADE_ANEW
    return remedy_of_dropped(compilation) or "Do not call torch._dynamo.reset() in the loop."


def is_break(how: str | None) -> bool:
    """Whether this exception says that a graph would break: fullgraph=True does not allow that."""
    return failure(how, None) in _BREAKS


def remedy_of_failure(compilation: Compilation | Compiled) -> str:
    """``Choose with torch.where instead of an `if`. Or compile `loss` without fullgraph=True.``"""
    name, hint, how = compilation.name, compilation.failure_hint, compilation.failure
    if own := _OF_EXCEPTION.get(failure(how, None) or ""):
        return own
    named = f"`{name}`" if name else "it"
    reason = compilation.failure_reason
    if reason and is_break(how) and (remedy := break_remedy(reason, hint, library=False)):
        is_allowed = failure(how, None) == _BREAK
        other = (
            f"compile {named} without fullgraph=True" if is_allowed else f"stop compiling {named}"
        )
        return f"{remedy} Or {other}."
    if hint:
        return f"{hint.removesuffix('.')}. Or stop compiling {named}."
    return f"Stop compiling {named}, or mend what fails: the exception has the message and place."


def _latest(figures: Figures) -> Compilation | None:
    """The last compilation that repeats, of the function with the longest row."""
    if not figures.steps.repeated:
        return None
    rows = {
        (each.function, each.failure is None): each
        for each in figures.log.compilations
        if each.in_a_row
    }
    repeated = [row for row in rows.values() if row.in_a_row >= REPEATED_STEPS]
    return max(repeated, key=lambda each: each.in_a_row, default=None)


def _named(figures: Figures, item: Compilation) -> str:
    """Its function; PyTorch names none of a backward or CUDA graph, which has its forward's id."""
    if item.new_sizes:
        most = max(figures.log.recordings, key=lambda each: max(each.sizes), default=None)
        return place(*most.function) if most else ""
    if item.kind != "backward":
        return place(*item.function)
    same_id = (each for each in figures.log.compilations if each.id == item.id and each.name)
    *_, forward = (None, *same_id)
    return backward_of(place(*forward.function) if forward else "")


def backward_of(named: str) -> str:
    return f"the backward of {named}" if named else "a backward"


def _cost(figures: Figures, compilation: Compilation) -> float | None:
    """Seconds of failed compilations in a step, as far as known; the first one takes longer."""
    failed = [
        each
        for each in figures.log.compilations
        if each.function == compilation.function and each.failure and each.in_a_row > 1
    ]
    seconds = total(each.seconds for each in failed)
    steps = {each.in_a_row for each in failed if each.seconds is not None}
    return None if seconds is None else seconds / len(steps)


def _ordinal(number: int) -> str:
    teen = 10 <= number % 100 <= 20
    return f"{number}{'th' if teen else _ENDINGS.get(number % 10, 'th')}"
