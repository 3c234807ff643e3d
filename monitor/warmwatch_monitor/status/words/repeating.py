"""A function that recompiles, or fails to compile, in every step: in words, and what helps.

Also what makes a training compile again (strict exports, graphs that no cache stores), and the
functions of which some calls run eagerly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from warmwatch.shared.advice import MADE_ANEW, MANY_MODULES, SURE, advice_for
from warmwatch.shared.breaks import break_remedy
from warmwatch.shared.fallbacks import FLEX, LIMIT, REMEDIES, cause_of, happens, reason_of, words
from warmwatch.shared.guard_remedies import ENTRY
from warmwatch.shared.phrases import called_from, counted, duration, place, took
from warmwatch.shared.values import NEW_INSTANCE, STRICT_EXPORT
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.figures.compile import CompileTarget
from warmwatch_monitor.figures.declared import total
from warmwatch_monitor.model.figures import Figures
from warmwatch_monitor.model.journal import Compilation, Fallback, TracedPlace
from warmwatch_monitor.model.records import CacheBypass
from warmwatch_monitor.model.run_summary import Compiled
from warmwatch_monitor.output.amounts import failure, failure_of, own_words, reason, size
from warmwatch_monitor.output.summary import Words, begin
from warmwatch_monitor.status.schema.rank import Inefficiency

NAMES = {"inductor_fx": "Inductor", "aot_autograd": "AOTAutograd", "triton": "Triton"}
_LONGEST = 120
_FREEZING = "Leave torch._inductor.config.freezing (or TORCHINDUCTOR_FREEZING=1) off in a training."
_OBJECTS = (  # of PyTorch's own, which a graph refers to by number
    ("get_external_object", "Use streams and events of a GPU outside of the compiled function."),
)
_SETTINGS_SINCE = (2, 8)  # PyTorch has what `_SETTINGS` name
# Part of PyTorch's reason (torch 2.6 to 2.15), and what helps; the first match counts.
_SETTINGS = (
    (
        "autograd_function_apply",
        (
            "Set TORCHINDUCTOR_AUTOGRAD_CACHE_ALLOW_CUSTOM_AUTOGRAD=1 (or import "
            "torch._functorch.config and set autograd_cache_allow_custom_autograd_functions = True "
            "in it), if your autograd.Function depends on its inputs alone."
        ),
    ),
    (
        "Unsupported call_",
        (
            "If the function is your own, name it in "
            "torch._inductor.config.unsafe_marked_cacheable_functions, with a string to change "
            "when its code changes, or make it a torch.library.custom_op."
        ),
    ),
)
_REMEDIES = (
    ("Unsupported call_", "If the function is your own, make it a torch.library.custom_op."),
    (
        "fakify_first_call",
        (
            "PyTorch splits the graph for DistributedDataParallel and caches no part: "
            "torch._dynamo.config.optimize_ddp = False keeps one graph, which is cached, but "
            "gradients are then exchanged only after the whole backward."
        ),
    ),
    ("cache_hash", "Give the context_fn of the checkpointing an attribute cache_hash, a string."),
    (
        "FX graph cache is not enabled",
        "Leave torch._inductor.config.fx_graph_cache on, and TORCHINDUCTOR_FX_GRAPH_CACHE=0 out.",
    ),
    ("freezing", _FREEZING),
    ("frozen", _FREEZING),
    ("uuid()", "Give your estimator or solver a method uuid() that returns a string."),
    ("custom pass", "Give your custom pass a method uuid() that returns a string."),
)
# what PyTorch itself calls in a graph, such as DTensor or compiled autograd
_OF_PYTORCH = re.compile(r"Unsupported call_\w+ target (?:<function )?(?:torch\.|TorchInGraph)")
_UNKNOWN = "`warmwatch status --misses` names the compilations; PyTorch caches no such graph."


def bypasses(figures: Figures) -> list[Inefficiency]:
    version = tuple(map(int, re.findall(r"\d+", figures.who.torch or "")[:2]))
    remedies = (*_OBJECTS, *(_SETTINGS if version >= _SETTINGS_SINCE else ()), *_REMEDIES)
    return [_bypass(bypass, remedies) for bypass in figures.log.bypasses]


def _bypass(bypass: CacheBypass, remedies: Iterable[tuple[str, str]]) -> Inefficiency:
    possible = () if _OF_PYTORCH.match(bypass.reason) else remedies
    remedy = next((text for part, text in possible if part in bypass.reason), _UNKNOWN)
    times = "" if bypass.count == 1 else f" {bypass.count} times"
    return Inefficiency(
        kind="cache_bypass",
        count=bypass.count,
        words=f"{NAMES[bypass.cache]}'s cache was bypassed{times}, so each run compiles again: "
        f"{own_words(bypass.reason, _LONGEST)}",
        advice=remedy,
    )


def dropped(target: CompileTarget) -> str | None:
    """Why PyTorch compiles again what it had compiled; ``None`` if it does not."""
    if not target.again or target.reason:
        return None
    by = STRICT_EXPORT if target.exported else "torch._dynamo.reset()"
    return f"{by} dropped what was compiled"


def remedy_of_dropped(target: CompileTarget) -> str | None:
    if not target.again:
        return None
    return _EXPORT_REMEDY if target.exported else None if target.reason else _RESET_REMEDY


_RESET_REMEDY = (
    "Move torch._dynamo.reset() out of the loop. Between trials that each create a model it is "
    "right."
)
_EXPORT_REMEDY = "Pass strict=False, which drops nothing, or export after the training."


def strict_exports(figures: Figures) -> list[Inefficiency]:
    function = figures.log.strict_exports
    if not function.compilations:
        return []
    return [
        Inefficiency(
            kind="strict_export",
            count=function.compilations,
            seconds=function.seconds,
            words=f"{counted(function.compilations, 'strict torch.export')} compiled the model for "
            f"{took(function.seconds)}; newer PyTorch then drops all compiled code, and the "
            "training compiles again",
            advice=_EXPORT_REMEDY,
        )
    ]


_BREAK = "Unsupported"
_BREAKS = (_BREAK, "UserError", "GuardOnDataDependentSymNode")
# Exceptions of PyTorch's with one cause
_OF_EXCEPTION = {
    "RecompileError": (
        "Unset torch._dynamo.config.error_on_recompile, or keep what changed: the exception "
        "names the guard."
    ),
    "ConstraintViolationError": (
        "Mark each tensor of that size: one that is not marked makes a constant of it. If the code "
        "does, torch._dynamo.maybe_mark_dynamic in place of mark_dynamic raises nothing, and does "
        "nothing. The exception names the size."
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
        return begin(failure_of(compilation), each)
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
    return remedy_of_dropped(compilation)


def is_break(how: str | None) -> bool:
    """Whether this exception says that a graph would break: fullgraph=True does not allow that."""
    return failure(how, None) in _BREAKS


def remedy_of_failure(compilation: Compilation | Compiled) -> str:
    """``Choose with torch.where instead of an `if`. Or compile `loss` without fullgraph=True.``"""
    name, hint, how = compilation.name, compilation.failure_hint, compilation.failure
    if own := _OF_EXCEPTION.get(failure(how, None) or ""):
        return own
    named = f"`{name}`" if name else "it"
    reason, at = compilation.failure_reason, compilation.failed_at or TracedPlace()
    if reason and is_break(how):
        remedy = break_remedy(reason, hint, at.name, library=at.library, caller=at.caller)
        if failure(how, None) == _BREAK:
            allowed = f"ompile {named} without fullgraph=True (or error_on_graph_break)."
            return f"{remedy} Or c{allowed}" if remedy else f"C{allowed}"
        if remedy:
            return f"{remedy} Or stop compiling {named}."
    if hint:
        return f"{hint.removesuffix('.')}. Or stop compiling {named}."
    return f"Stop compiling {named}, or fix what fails: the exception has the message and place."


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


_ATTRIBUTE = r"self\.(?P<name>[\w.]{1,80}) == "
# PyTorch's default for all compilations of one function, and the prefix of that setting's name
_OF_ALL, _ALL = 256, "accumulated_"
_FUNCTIONS = "functions"  # that one wrapper calls: none of them needs all these entries
_OF_WRAPPER = (
    "PyTorch counts them as one function. Give each a limit of its own: compile a function with "
    "code of its own that calls it (def activation(x): return relu(x))"
)
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
        return "its model was created again"
    if _is_shared(fallback):
        return f"{fallback.variants} functions or modules that one wrapper calls share it"
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


def _is_shared(fallback: Fallback) -> bool:
    """Whether others filled the limit, too, since one wrapper calls them."""
    return fallback.variants_of == _FUNCTIONS and fallback.in_a_row < REPEATED_STEPS


def _differing(fallback: Fallback) -> str:
    """The attribute in which modules of one class differ: ``layer_idx``."""
    match = re.match(_ATTRIBUTE, re.sub(ENTRY, "", fallback.reason or ""))
    return match["name"] if match else ""


def _within_a_step(fallback: Fallback, figures: Figures) -> bool:
    """Whether one step reached the limit, so that each step needs all the variants."""
    return bool(figures.steps.count) and fallback.in_steps == 1 and fallback.category != _NUMBERS


def remedy_of_fallback(figures: Figures) -> str | None:
    """What helps the first function of each cause; ``None`` if nothing is known of them.

    It contains the advice for the recompiles as it is, so that a view can leave out the second.
    """
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
    if _is_shared(fallback):
        isolated = ", or call torch.compile(..., isolate_recompiles=True) for each"
        return f"{_OF_WRAPPER}{isolated if fallback.isolates else ''}."
    variants = _variants(fallback)
    if variants and (fallback.category == NEW_INSTANCE or fallback.variants_of == "parameters"):
        if variants > _OF_ALL and fallback.setting and not fallback.setting.startswith(_ALL):
            name = f"{name} and {_ALL}{fallback.setting}"
        return (
            f"They are the same in every step: set {name} to {variants} or more"
            f"{_own(fallback, variants)}.{_or_instead(fallback, figures)}"
        )
    instead = _instead(fallback, figures)
    doubled = 2 * (fallback.limit or 8)
    if _within_a_step(fallback, figures):
        return (
            f"They come back in every step: raise {name}, for example to {doubled}, until none is "
            f"refused{_own(fallback, doubled)}.{_or_instead(fallback, figures)}"
        )
    return (
        f"{instead} If only these inputs come back, raise {name} instead, for example to "
        f"{doubled}{_own(fallback, doubled)}; if new ones keep coming, that only delays it."
    )


def _own(fallback: Fallback, limit: int) -> str:
    if not fallback.isolates or limit > _OF_ALL:
        return ""
    return f", or call torch.compile(..., recompile_limit={limit}, isolate_recompiles=True)"


def _or_instead(fallback: Fallback, figures: Figures) -> str:
    """What needs no higher limit, if that is known to help."""
    is_sure = fallback.parameter or advice_for(fallback) in SURE
    instead = _instead(fallback, figures) if is_sure else ""
    return f" Or: {instead}" if instead else ""


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
