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
}


def refusal_of(raised: BaseException) -> str | None:
    """The name of a refusal; ``None`` for any other exception, of which no code runs."""
    if type(raised) is not RuntimeError or not raised.args or type(raised.args[0]) is not str:
        return None
    text = raised.args[0][:4_000]
    return next((name for part, name in _OF_TEXT.items() if part in text), None)
