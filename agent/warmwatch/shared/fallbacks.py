"""Why calls of a function run eagerly: the causes, with their words and remedies. Pure.

Also what compiled code refuses to do when it runs, by exceptions that eager code does not raise.
Their type is only ``RuntimeError``, so they are known by PyTorch's own text, of which nothing is
recorded but the name here. (torch 2.6 to 2.15)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Closed list: the label of the metric. ``setting`` of a journal line is the cause, or the name of
# the limit that was hit.
LIMIT, FLEX, DISABLED = CAUSES = ("recompile_limit", "flex_attention", "disable")
# settings of the cause ``disable``: PyTorch skips the function as well
MODE, SUPPRESSED = OF_DISABLED = ("dispatch_mode", "suppress_errors")
REMEDIES = {
    LIMIT: "It was recompiled up to the limit. Calls that fit a compiled entry still run compiled, "
    "others run eagerly: see to its recompiles first.",
    FLEX: "Call it in compiled code, or through torch.compile(flex_attention).",
    DISABLED: "Leave torch._dynamo.config.disable unset.",
    MODE: "Enter such a mode around the uncompiled function only: after a call in one, this PyTorch"
    " never runs a function compiled again.",
    SUPPRESSED: "Leave torch._dynamo.config.suppress_errors unset to get the exception, and fix "
    "what fails, or stop compiling the function.",
}


def cause_of(setting: str | None) -> str:
    if setting in OF_DISABLED:
        return DISABLED
    return setting if setting in (FLEX, DISABLED) else LIMIT


def reason_of(setting: str | None) -> str:
    """What to pass to the functions below: the cause, or a setting with words of its own."""
    return setting if setting in OF_DISABLED else cause_of(setting)


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
    if cause == DISABLED or cause in OF_DISABLED:
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
        SUPPRESSED: "its compilation failed, which torch._dynamo.config.suppress_errors hides",
        LIMIT: f"the recompile limit{limited} was reached{' (fullgraph)' if fullgraph else ''}",
    }
    return f"{happens(cause, where, fullgraph=fullgraph)}{since}: {why[cause]}"


# by a part of PyTorch's text
_OF_TEXT = {
    "compiled with non-empty donated buffers": "donated_buffers",
    "does not currently support double backward": "double_backward",
    "accessing tensor output of CUDAGraphs that has been overwritten": "overwritten_output",
    "Trying to backward through the graph a second time": "freed_graph",
    "call a compiled backward function within vmap/grad/vjp": "transformed_backward",
    "Detected that you are using FX to ": "traced_again",
    "Either mode or options can be specified": "mode_and_options",
    "Unrecognized mode=": "unknown_mode",
    "Unexpected optimization option": "unknown_option",
    "Invalid backend: ": "unknown_backend",
}
# by ``torch.compile`` itself, before anything compiles or steps
REFUSED_CALLS = ("mode_and_options", "unknown_mode", "unknown_option", "unknown_backend")
_OWN_TYPE = ("torch._dynamo.exc", "InvalidBackend")
# what was refused, and what helps
REFUSALS = {
    "donated_buffers": (
        "a compiled backward frees what a second one would need",
        (
            "Import torch._functorch.config and set donated_buffer = False in it before the first "
            "compiled call, or leave out retain_graph=True and create_graph=True."
        ),
    ),
    "double_backward": (
        "compiled code has no second derivative",
        (
            "Call the uncompiled module where its gradient is differentiated again "
            "(create_graph=True), such as for a gradient penalty."
        ),
    ),
    "overwritten_output": (
        "an output of a CUDA graph was read after the next call had overwritten it",
        (
            "Clone the output outside of the compiled function, or call "
            "torch.compiler.cudagraph_mark_step_begin() before each step."
        ),
    ),
    "freed_graph": (  # eager code frees each operator by itself
        "a backward needs what an earlier one had freed; compiled code is freed as a whole",
        (
            "Add the losses and call backward() once, and detach() what a step takes over from an "
            "earlier one."
        ),
    ),
    "transformed_backward": (
        "a compiled backward was called within a transform, such as vmap",
        (
            "Call the uncompiled module there, or compile the function that calls torch.func's "
            "transforms."
        ),
    ),
    "traced_again": (
        "a compiled function was traced by torch.fx or torch.jit",
        "Trace the uncompiled module, and compile afterwards.",
    ),
    "mode_and_options": (
        "torch.compile was called with both mode and options",
        (
            "Pass one of the two: torch._inductor.list_mode_options(mode) has the options of a "
            "mode, to which others can be added."
        ),
    ),
    "unknown_mode": (
        "torch.compile was called with a mode that this PyTorch does not have",
        "Take its name from torch._inductor.list_mode_options(), such as reduce-overhead.",
    ),
    "unknown_option": (
        "torch.compile was called with an option that Inductor does not have",
        "Take its name from torch._inductor.list_options().",
    ),
    "unknown_backend": (
        "torch.compile was called with a backend that PyTorch does not have",
        "Take its name from torch._dynamo.list_backends(), or install the package that has it.",
    ),
}


def refusal_of(raised: BaseException) -> str | None:
    """The name of a refusal; ``None`` for any other exception, of which no code runs."""
    kind = type(raised)
    if kind is not RuntimeError and (kind.__module__, kind.__name__) != _OWN_TYPE:
        return None
    if not raised.args or type(raised.args[0]) is not str:
        return None
    text = raised.args[0][:4_000]
    return next((name for part, name in _OF_TEXT.items() if part in text), None)
