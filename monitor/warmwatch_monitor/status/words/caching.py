"""What makes a training compile again: strict exports, and graphs that no cache stores."""

from __future__ import annotations

import re
from collections.abc import Iterable

from warmwatch.shared.phrases import counted, took
from warmwatch.shared.values import STRICT_EXPORT
from warmwatch_monitor.figures.compile import CompileTarget
from warmwatch_monitor.model import CacheBypass, Figures
from warmwatch_monitor.output.amounts import own_words
from warmwatch_monitor.status.schema.compile import Inefficiency

NAMES = {"inductor_fx": "Inductor", "aot_autograd": "AOTAutograd", "triton": "Triton"}
_LONGEST = 120
_FREEZING = "Leave torch._inductor.config.freezing (or TORCHINDUCTOR_FREEZING=1) off in a training."
_SETTINGS_SINCE = (2, 8)  # PyTorch has what `_SETTINGS` name
# Part of PyTorch's reason (torch 2.6 to 2.15), and what helps; the first match counts.
_SETTINGS = (
    (
        "autograd_function_apply",
        (
            "Set torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True "
            "(or TORCHINDUCTOR_AUTOGRAD_CACHE_ALLOW_CUSTOM_AUTOGRAD=1), if your "
            "autograd.Function depends on its inputs alone."
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
    remedies = (*(_SETTINGS if version >= _SETTINGS_SINCE else ()), *_REMEDIES)
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
    return _EXPORT_REMEDY if target.again and target.exported else None


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
