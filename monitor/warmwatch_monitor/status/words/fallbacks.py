"""Functions of which some calls run eagerly: which calls, why, and what helps."""

from __future__ import annotations

import re
from collections import Counter

from warmwatch.shared.advice import MADE_ANEW, MANY_MODULES, SURE, advice_for
from warmwatch.shared.fallbacks import FLEX, LIMIT, REMEDIES, cause_of, happens, reason_of, words
from warmwatch.shared.guard_text import ENTRY
from warmwatch.shared.phrases import continued, counted, place
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.model import Fallback, Figures
from warmwatch_monitor.output.amounts import size
from warmwatch_monitor.output.summary import Words, begin

_ATTRIBUTE = r"self\.(?P<name>[\w.]{1,80}) == "
# PyTorch's default for all compilations of one function, and the prefix of that setting's name
_OF_ALL, _ALL = 256, "accumulated_"
_NUMBERS = "python_value"  # may count up: seen once, it cannot be told from a set of values


def fallback(figures: Figures) -> Words:
    """PyTorch reports the functions, but not how many of their calls run eagerly."""
    causes = figures.compile.fallbacks_by_cause or {}
    wordses = [_of_cause(cause, total, figures) for cause, total in causes.items() if total]
    if not wordses:
        return begin("some calls run eagerly")
    return Words("; ".join(wordse.text for wordse in wordses), wordses[0].short)


def _of_cause(cause: str, total: int, figures: Figures) -> Words:
    first = _first(cause, figures)
    if first is None:
        where = counted(total, "function")
        return Words(words(cause, where), happens(cause, where))
    name = place(*first.function) or "a function"
    if cause == FLEX:
        return unfused(first, total - 1)
    cause = reason_of(first.setting)
    what = happens(cause, name, fullgraph=first.fullgraph)
    since = f" since step {first.step + 1}" if figures.steps.count else ""
    more = counted(total - 1, "other function")
    others = f" (and of {more})" if total > 1 else ""
    text = words(cause, name, f"{since}{others}", first.limit, fullgraph=first.fullgraph)
    if cause != LIMIT:
        return Words(text, what)
    sizes = first.inputs if first.category == "shape" and not first.variants else ""
    such = f", such as {sizes}" if sizes else ""
    why = _why(first, figures)
    return Words(f"{text}{such}{f'; {why}' if why else ''}", what)


def _first(cause: str, figures: Figures) -> Fallback | None:
    generator = (
        fallback for fallback in figures.log.fallbacks if cause_of(fallback.setting) == cause
    )
    return next(generator, None)


def _why(fallback: Fallback, figures: Figures) -> str:
    """Why it needs more entries than the limit allows; empty if unknown."""
    if fallback.main_limit is not None:
        return f"the main thread's limit is {fallback.main_limit}"
    variants = _variants(fallback)
    if variants and fallback.variants_of == "parameters":
        return f"the optimizer has {counted(variants, 'kind')} of parameters"
    if fallback.category == NEW_INSTANCE and fallback.anew:
        return "its model was made anew"
    if fallback.category == NEW_INSTANCE:
        modules = counted(variants, "module") if variants else "modules"
        if name := _differing(fallback):
            return f"{modules} of its class differ in `{name}`"
        if variants:
            return f"it runs for {modules}"
    if fallback.in_a_row >= REPEATED_STEPS:
        return f"it had recompiled in {fallback.in_a_row} steps in a row"
    if _within_a_step(fallback, figures):
        return "one step needs more variants"
    return ""


def _variants(fallback: Fallback) -> int:
    """How many entries it needs; 0 if unknown. Fewer than the limit do not explain a refusal:
    the modules may be in no common model, or other inputs need entries, too.
    """
    return (
        fallback.variants if fallback.variants and fallback.variants > (fallback.limit or 0) else 0
    )


def _differing(fallback: Fallback) -> str:
    """The attribute in which modules of one class differ: ``layer_idx``."""
    match = re.match(_ATTRIBUTE, re.sub(ENTRY, "", fallback.reason or ""))
    return match["name"] if match else ""


def _within_a_step(fallback: Fallback, figures: Figures) -> bool:
    """Whether one step reached the limit, so that each step needs all the variants."""
    return bool(figures.steps.count) and fallback.in_steps == 1 and fallback.category != _NUMBERS


def remedy_of_fallback(figures: Figures) -> str | None:
    """What helps the first function of each cause; ``None`` if nothing is known of them."""
    causes = figures.compile.fallbacks_by_cause or {}
    names = [_remedy(cause, figures) for cause, total in causes.items() if total]
    return " ".join(filter(None, names)) or None


def _remedy(cause: str, figures: Figures) -> str | None:
    fallback = _first(cause, figures)
    if cause != LIMIT:
        return REMEDIES[reason_of(fallback.setting) if fallback else cause]
    if fallback is None:
        return None
    name = f"torch._dynamo.config.{fallback.setting or 'recompile_limit'}"
    if fallback.main_limit is not None:
        own = _own(fallback, fallback.main_limit)
        return f"PyTorch keeps settings by thread: set {name} in the thread that calls it{own}."
    if fallback.category == NEW_INSTANCE and fallback.anew:
        return MADE_ANEW
    variants = _variants(fallback)
    if variants and (fallback.category == NEW_INSTANCE or fallback.variants_of == "parameters"):
        if variants > _OF_ALL and fallback.setting and not fallback.setting.startswith(_ALL):
            name = f"{name} and {_ALL}{fallback.setting}"
        return (
            f"They are the same in every step: set {name} to {variants} or more"
            f"{_own(fallback, variants)}.{_or_instead(fallback, figures)}"
        )
    instead = _instead(fallback, figures)
    if fallback.in_a_row >= REPEATED_STEPS:
        return f"{instead} A higher {name} only delays it."
    doubled = 2 * (fallback.limit or 8)
    if _within_a_step(fallback, figures):
        return (
            f"They come back in every step: raise {name}, for example to {doubled}, until none is "
            f"refused{_own(fallback, doubled)}.{_or_instead(fallback, figures)}"
        )
    return (
        f"If these inputs come back, raise {name}, for example to "
        f"{doubled}{_own(fallback, doubled)}. If new ones keep coming, a higher limit only "
        f"delays it: {continued(instead)}"
    )


def _own(fallback: Fallback, limit: int) -> str:
    if not fallback.isolates or limit > _OF_ALL:
        return ""
    return f", or call torch.compile(..., recompile_limit={limit}, isolate_recompiles=True)"


def _or_instead(fallback: Fallback, figures: Figures) -> str:
    """What needs no higher limit, if that is known to help."""
    is_sure = fallback.parameter or advice_for(fallback) in SURE
    instead = _instead(fallback, figures) if is_sure else ""
    return f" Or {continued(instead)}" if instead else ""


def _instead(fallback: Fallback, figures: Figures) -> str:
    """What avoids the refused call, or, if one step after another filled the cache, most of its
    entries: the refused call may differ in something else, too."""
    if fallback.category == NEW_INSTANCE:
        return MANY_MODULES
    own = advice_for(fallback) or "Remove what makes it recompile."
    if fallback.in_a_row < REPEATED_STEPS:
        return own
    entries = [
        made
        for made in figures.log.compilations
        if made.function == fallback.function and made.kind == "forward" and not made.at_limit
    ]
    filled = Counter(
        filter(None, (advice_for(made, later=entries[at:]) for at, made in enumerate(entries, 1)))
    )
    remedies = [remedy for remedy, count in filled.most_common(1) if count > 1]
    return next(iter(remedies), own)


def unfused(fallback: Fallback, others: int = 0) -> Words:
    """``flex_attention`` runs unfused in `attend` (train.py:9): it is called uncompiled, ...``.

    ``others``: how many other functions call it so.
    """
    where = place(*fallback.function)
    where += f" (and {counted(others, 'other function')})" if where and others > 0 else ""
    scores = (
        "" if fallback.score_bytes is None else f", {size(fallback.score_bytes)} of scores a call"
    )
    return Words(f"{words(FLEX, where)}{scores}", happens(FLEX, where))
