"""What compiled code refuses to do when it runs: exceptions that eager code does not raise.

Their type is only ``RuntimeError``, so they are known by PyTorch's own text, of which nothing is
recorded but the name here. (torch 2.6 to 2.15)
"""

from __future__ import annotations

# by a part of PyTorch's text
_OF_TEXT = {
    "compiled with non-empty donated buffers": "donated_buffers",
    "does not currently support double backward": "double_backward",
    "accessing tensor output of CUDAGraphs that has been overwritten": "overwritten_output",
    "Trying to backward through the graph a second time": "freed_graph",
    "call a compiled backward function within vmap/grad/vjp": "transformed_backward",
    "Detected that you are using FX to ": "traced_again",
}
# what was refused, and what helps
REFUSALS = {
    "donated_buffers": (
        "a compiled backward frees what a second one would need",
        (
            "Set torch._functorch.config.donated_buffer = False before the first compiled call, or "
            "leave out retain_graph=True and create_graph=True."
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
}


def refusal_of(raised: BaseException) -> str | None:
    """The name of a refusal; ``None`` for any other exception, of which no code runs."""
    if type(raised) is not RuntimeError or not raised.args or type(raised.args[0]) is not str:
        return None
    text = raised.args[0][:4_000]
    return next((name for part, name in _OF_TEXT.items() if part in text), None)
