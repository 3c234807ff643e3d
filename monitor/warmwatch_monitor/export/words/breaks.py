"""What helps where a graph breaks, by PyTorch's words for the break. Pure.

Only remedies that follow from the words alone; where they do not, there is none.
"""

from __future__ import annotations

# the first that is found in the reason, in small letters (torch 2.6 to 2.15)
_REMEDIES = (
    (
        ("tensor.item", "aten._local_scalar_dense", "data dependent operator", ".tolist"),
        (
            "Keep the number on the device (log it rarely, outside of the compiled function), or "
            "set torch._dynamo.config.capture_scalar_outputs."
        ),
    ),
    (
        (
            "data-dependent branching",
            "generic_jump",
            "data-dependent jump",
            "data-dependent control",
        ),
        "Choose with torch.where or torch.cond instead of an `if` on a tensor's value.",
    ),
    (
        ("dynamic shape operator", "nonzero"),
        (
            "Avoid operators whose result's size depends on values (nonzero, masks as indices), or "
            "set torch._dynamo.config.capture_dynamic_output_shape_ops."
        ),
    ),
    (
        ("builtin print", "print", "logging", "logger"),
        (
            "Take the printing out of the compiled function, or list the function in "
            "torch._dynamo.config.reorderable_logging_functions."
        ),
    ),
    (
        ("graph_break()", "torch._dynamo.graph_break", "user-invoked graph break"),
        "The program asks for this break itself: take out torch._dynamo.graph_break().",
    ),
    (
        (
            "torch.compiler.disable",
            "torch._dynamo.disable",
            "skip function",
            "skipfiles",
            "skipped",
        ),
        (
            "The function is left out of compilation on purpose: call it outside of the compiled "
            "one, or let torch.compile see it."
        ),
    ),
    (
        ("context manager", "generic_context_manager", "with block"),
        "Enter the context manager outside of the compiled function.",
    ),
    (
        ("numpy", "non-torch", "c/c++", "builtin function", "attempted to call function marked"),
        "Use a torch function in its place, or wrap the call with torch.library.custom_op.",
    ),
)


def remedy(reason: str) -> str | None:
    """One sentence; ``None`` where the words tell nothing."""
    said = reason.lower()
    return next((words for signs, words in _REMEDIES if any(s in said for s in signs)), None)
