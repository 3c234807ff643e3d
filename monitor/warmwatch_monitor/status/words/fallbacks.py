"""Functions of which some calls run eagerly: which calls, why, and what helps."""

from __future__ import annotations

import re

from warmwatch.shared.advice import MADE_ANEW, advice_for
from warmwatch.shared.phrases import counted, place
from warmwatch.shared.reasons import ENTRY
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.model import Fallback, Figures
from warmwatch_monitor.output.amounts import size

FLEX = "flex_attention"
CALL_COMPILED = "Call it in compiled code, or through torch.compile(flex_attention)."
_NO_LIMIT = ("disable", FLEX)  # settings of a fallback that are no recompile limit
_ATTRIBUTE = r"self\.(?P<name>[\w.]{1,80}) == "
_NUMBERS = "python_value"  # may count up: seen once, it cannot be told from a set of values


def fallback(figures: Figures) -> str:
    """PyTorch reports the functions, but not how many of their calls run eagerly."""
    total, known = figures.compile.fallbacks or 0, figures.log.fallbacks
    if not known:
        functions = counted(total, "function")
        return f"new inputs of {functions} run eagerly: the recompile limit was reached"
    first = known[0]
    name = place(first.name, first.file, first.line) or "a function"
    since = f" since step {first.step + 1}" if figures.steps.count else ""
    if first.setting in _NO_LIMIT:
        others = f" (and {counted(total - 1, 'other function')})" if total > 1 else ""
        if first.setting == FLEX:
            return unfused(first, others)
        return (
            f"{name} runs eagerly{since}{others}: a new input came while "
            "torch._dynamo.config.disable was set"
        )
    limit = f" of {first.limit}" if first.limit is not None else ""
    more = total - 1
    others = f" (and of {counted(more, 'other function')})" if more > 0 else ""
    such = f", such as {first.inputs}" if first.inputs and not first.variants else ""
    words = (
        f"new inputs of {name} run eagerly{since}{others}: "
        f"the recompile limit{limit} was reached{such}"
    )
    return f"{words}; {why}" if (why := _why(first, figures)) else words


def _why(one: Fallback, figures: Figures) -> str:
    """Why it needs more entries than the limit allows; empty if unknown."""
    if one.main_limit is not None:
        return f"the main thread's limit is {one.main_limit}"
    variants = _variants(one)
    if variants and one.variants_of == "parameters":
        return f"the optimizer calls it with {counted(variants, 'kind')} of parameters"
    if one.category == NEW_INSTANCE and one.anew:
        return "its model was made anew"
    if one.category == NEW_INSTANCE:
        modules = counted(variants, "module") if variants else "modules"
        if name := _differing(one):
            return f"{modules} of its class differ in `{name}`"
        if variants:
            return f"it runs for {modules}"
    if one.in_a_row >= REPEATED_STEPS:
        return f"it had recompiled in {one.in_a_row} steps in a row"
    if _within_a_step(one, figures):
        return "one step needs more variants"
    return ""


def _variants(one: Fallback) -> int:
    """How many entries it needs; 0 if unknown. Fewer than the limit do not explain a refusal:
    the modules may be in no common model, or other inputs need entries, too.
    """
    return one.variants if one.variants and one.variants > (one.limit or 0) else 0


def _differing(one: Fallback) -> str:
    """The attribute in which modules of one class differ: ``layer_idx``."""
    found = re.match(_ATTRIBUTE, re.sub(ENTRY, "", one.reason or ""))
    return found["name"] if found else ""


def _within_a_step(one: Fallback, figures: Figures) -> bool:
    """Whether one step reached the limit, so that each step needs all the variants."""
    return bool(figures.steps.count) and one.in_steps == 1 and one.category != _NUMBERS


def remedy_of_fallback(figures: Figures) -> str | None:
    """What helps the first function; ``None`` if nothing is known of it."""
    if not figures.log.fallbacks:
        return None
    one = figures.log.fallbacks[0]
    if one.setting == FLEX:
        return CALL_COMPILED
    if one.setting == "disable":
        return "Leave torch._dynamo.config.disable unset."
    name = f"torch._dynamo.config.{one.setting or 'recompile_limit'}"
    if one.main_limit is not None:
        own = _own(one, one.main_limit)
        return f"PyTorch keeps settings by thread: set {name} in the thread that calls it{own}."
    if one.category == NEW_INSTANCE and one.anew:
        return MADE_ANEW
    variants = _variants(one)
    if variants and (one.category == NEW_INSTANCE or one.variants_of == "parameters"):
        return (
            f"They are the same in every step: set {name} to {variants} or more"
            f"{_own(one, variants)}."
        )
    instead = _instead(one)
    if one.in_a_row >= REPEATED_STEPS:
        return f"{instead} A higher {name} only delays it."
    doubled = 2 * (one.limit or 8)
    if _within_a_step(one, figures):
        return (
            f"They come back in every step: raise {name}, for example to {doubled}, until none is "
            f"refused{_own(one, doubled)}."
        )
    return (
        f"If these inputs come back, raise {name}, for example to {doubled}{_own(one, doubled)}. "
        f"If new ones keep coming, a higher limit only delays it: {instead[0].lower()}{instead[1:]}"
    )


def _own(one: Fallback, limit: int) -> str:
    if not one.isolates:
        return ""
    return f", or call torch.compile(..., recompile_limit={limit}, isolate_recompiles=True)"


def _instead(one: Fallback) -> str:
    known = advice_for(one)
    return known or "Remove what makes it recompile."


def unfused(one: Fallback, others: str = "") -> str:
    """``flex_attention`` runs unfused in `attend` (train.py:9): it is called uncompiled, ...``.

    ``others``: how many other functions call it so.
    """
    where = place(one.name, one.file, one.line)
    at = f" in {where}" if where else ""
    scores = "" if one.score_bytes is None else f", {size(one.score_bytes)} of scores a call"
    return f"`flex_attention` runs unfused{at}{others}: it is called uncompiled{scores}"
