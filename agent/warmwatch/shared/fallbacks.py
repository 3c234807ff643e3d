"""Why calls of a function run eagerly: the causes, with their words and remedies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Closed list: the label of the metric. ``setting`` of a journal line is the cause, or the name of
# the limit that was hit.
LIMIT, FLEX, DISABLED = CAUSES = ("recompile_limit", "flex_attention", "disable")
MODE = "dispatch_mode"  # a setting of the cause ``disable``: PyTorch skips the function as well
REMEDIES = {
    LIMIT: "It was recompiled up to the limit. Calls that fit a compiled entry still run compiled, "
    "others run eagerly: see to its recompiles first.",
    FLEX: "Call it in compiled code, or through torch.compile(flex_attention).",
    DISABLED: "Leave torch._dynamo.config.disable unset.",
    MODE: "Enter such a mode around the uncompiled function only: after a call in one, this PyTorch"
    " never runs a function compiled again.",
}


def cause_of(setting: str | None) -> str:
    return DISABLED if setting == MODE else setting if setting in (FLEX, DISABLED) else LIMIT


def reason_of(setting: str | None) -> str:
    """What to pass to the functions below: the cause, or a setting with words of its own."""
    return MODE if setting == MODE else cause_of(setting)


def function_of(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """What identifies the function of a report: with ``fullgraph=True`` PyTorch raises at each call
    that does not fit, and reports each.

    A frame's number does not: ``torch._dynamo.reset()`` restarts the numbers.
    """
    frame = str(values.get("id") or "").rpartition("/")[0]
    return frame, *(values.get(field) for field in ("name", "file", "line"))


def happens(cause: str, where: str, *, fullgraph: bool = False) -> str:
    """What happens in the function at ``where``, which may be several.

    ``fullgraph``: PyTorch raises at the limit.
    """
    if cause == FLEX:
        return f"`flex_attention` runs unfused{f' in {where}' if where else ''}"
    who = where or "a function"
    if cause in (DISABLED, MODE):
        return f"calls of {who} run eagerly"
    return f"new inputs of {who} {'fail' if fullgraph else 'run eagerly'}"


def words(
    cause: str, where: str, since: str = "", limit: int | None = None, *, fullgraph: bool = False
) -> str:
    """What happens, and why.

    ``since``: from when on, such as `` since step 7``. ``limit``: the recompile limit.
    """
    limited = "" if limit is None else f" of {limit}"
    why = {
        FLEX: "it is called uncompiled",
        DISABLED: "a new input came while torch._dynamo.config.disable was set",
        MODE: "it was called in a TorchDispatchMode, such as FlopCounterMode",
        LIMIT: f"the recompile limit{limited} was reached{' (fullgraph)' if fullgraph else ''}",
    }
    return f"{happens(cause, where, fullgraph=fullgraph)}{since}: {why[cause]}"
