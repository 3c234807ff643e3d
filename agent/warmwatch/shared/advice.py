"""Advice for a recompile: one sentence for each category.

Only remedies that follow from the category alone are here; where the category does not say what
to change, there is no advice.
"""

from __future__ import annotations

import re

ADVICE = {
    "shape": (
        "Pad the size that changes, or bucket it (a ragged last batch can be dropped), or mark it "
        "with torch._dynamo.mark_dynamic before the first call."
    ),
    "grad_mode": (
        "Run one evaluation (or no_grad) step at the start of the run, so that its graph is "
        "compiled during the warm-up and not later."
    ),
    "dtype": "Cast the inputs to one dtype before they reach the compiled function.",
    "requires_grad": (
        "Set requires_grad of parameters and inputs before the first step and leave it so."
    ),
    "autocast": (
        "Enter autocast with the same dtype and enabled flag around every call of the "
        "compiled function, evaluation included."
    ),
    "python_value": (
        "Pass the number that changes (a learning rate, a step count) as a tensor, or keep it "
        "out of the compiled function."
    ),
    "module_state": (
        "Do not set attributes of the module or call train() and eval() between steps, or "
        "compile each mode once during the warm-up."
    ),
    "object_identity": (
        "Create the object once and pass the same one at every call; a new one each time is a "
        "new guard."
    ),
    "global_state": (
        "Set global switches (deterministic algorithms, default dtype, number of threads) once, "
        "before the first compiled call."
    ),
    "device": "Move the inputs to one device before they reach the compiled function.",
}


# A Triton kernel of the user's own, which PyTorch's settings do not reach.
_OF_TRITON = {
    "shape": (
        "Pad or bucket the size that changes (to the next power of two, say), or leave it out of "
        "the kernel's autotune key; a size that is no tl.constexpr compiles nothing anew."
    ),
    "dtype": "Cast the tensors to one dtype before they reach the kernel.",
    "python_value": (
        "Pass what changes as an ordinary argument of the kernel, not as a tl.constexpr; or call "
        "it with each value during the warm-up."
    ),
}


# What is no recompile.
OF_BREAK = (
    "Take it out of the compiled function; TORCH_LOGS=graph_breaks shows more, and "
    "torch.compile(fullgraph=True) raises there."
)
OF_FALLBACK = (
    "It was recompiled up to the limit. Calls that fit a compiled entry still run compiled, others "
    "run eagerly: see to its recompiles first."
)


# A guard on the length of a list or a dict. A number that changes is another matter.
_LENGTH = re.compile(r"^\s*(?:!?[\d/_]+:\s*)?len\(")
_OF_LENGTH = (
    "Keep the number of items in it the same (pad it, or fill it before the first compiled call), "
    "or keep it out of the compiled function."
)


def advice(category: str | None, kind: str | None = None, reason: str | None = None) -> str | None:
    """The remedy for a recompile of ``category``, one sentence; ``None`` where none is known.

    ``kind``: one of ``record.KINDS``. ``reason``: PyTorch's words. Each where it is known.
    """
    if category is None:
        return None
    if kind != "triton" and reason and _LENGTH.match(reason):
        return _OF_LENGTH
    return (_OF_TRITON if kind == "triton" else ADVICE).get(category)
