"""What helps against a graph break."""

from __future__ import annotations

from msgspec import Struct

from warmwatch_monitor.model import GraphBreak

# the setting's name from some version between 2.8 and 2.11 on, and its name in all versions
_IGNORED, _IGNORED_BEFORE = "ignore_logging_functions", "ignore_logger_methods"


class _Remedy(Struct, frozen=True):
    """``signs``: one of these is in the reason, in small letters (torch 2.6 to 2.15).

    ``words``: what to change in the code; ``setting``: or what to set, which helps in a library's
    code as well.
    """

    signs: tuple[str, ...]
    words: str
    setting: str = ""


_REMEDIES = (
    _Remedy(
        ("tensor.item", "aten._local_scalar_dense", "data dependent operator", ".tolist"),
        "keep the number on the device (log it rarely, outside of the compiled function)",
        "set torch._dynamo.config.capture_scalar_outputs",
    ),
    _Remedy(
        (
            "data-dependent branching",
            "generic_jump",
            "data-dependent jump",
            "data-dependent control",
        ),
        "choose with torch.where or torch.cond instead of an `if` on a tensor's value",
    ),
    _Remedy(
        ("dynamic shape operator", "nonzero"),
        ("avoid operators whose result's size depends on values (nonzero, masks as indices)"),
        "set torch._dynamo.config.capture_dynamic_output_shape_ops",
    ),
    _Remedy(
        ("logging", "logger"),
        "take the logging out of the compiled function",
        "add the method, such as logging.Logger.warning, to torch._dynamo.config.{ignored}",
    ),
    _Remedy(
        ("builtin print", "print"),
        "take the printing out of the compiled function",
        "add print to torch._dynamo.config.reorderable_logging_functions",
    ),
    _Remedy(
        ("graph_break()", "torch._dynamo.graph_break", "user-invoked graph break"),
        "the program requests this break itself: remove torch._dynamo.graph_break()",
    ),
    _Remedy(
        (
            "torch.compiler.disable",
            "torch._dynamo.disable",
            "skip function",
            "skipfiles",
            "skipped",
        ),
        (
            "the function is left out of compilation on purpose: call it outside of the compiled "
            "one, or let torch.compile see it"
        ),
    ),
    _Remedy(
        ("context manager", "generic_context_manager", "with block"),
        "enter the context manager outside of the compiled function",
    ),
    _Remedy(
        ("numpy", "non-torch", "c/c++", "builtin function", "attempted to call function marked"),
        "use a torch function in its place, or wrap the call with torch.library.custom_op",
    ),
)


# PyTorch has one reason for what somebody marked and for what has no Python code.
_IN_C = _Remedy(
    ("python builtin", "c extension"),
    "it is written in C, so Dynamo cannot trace it: use a torch function in its place, or call it "
    "outside of the compiled function",
)


def break_remedy(one: GraphBreak) -> str | None:
    """One sentence; ``None`` if none is known, or the user cannot change the code that breaks."""
    lowered = one.reason.lower()
    known = next((of for of in _REMEDIES if any(sign in lowered for sign in of.signs)), None)
    if "marked as skipped" in lowered and any(s in (one.hint or "").lower() for s in _IN_C.signs):
        known = _IN_C
    if known is None:
        return None if one.library or not one.hint else f"PyTorch's hint: {one.hint}"
    named = _IGNORED if _IGNORED in (one.hint or "") else _IGNORED_BEFORE
    parts = (known.words * (not one.library), known.setting.format(ignored=named))
    words = ", or ".join(filter(None, parts))
    return f"{words[0].upper()}{words[1:]}." if words else None
