"""The type in which an operation computes, from the dtypes of its tensors.

A product of FP8 matrices also gets scales in float32, and attention gets statistics in float32: the
narrowest floating type is that of the matrices.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from warmwatch.shared.values import OTHER_DTYPE

# as PyTorch names them, and as it prints them in a graph
_TYPES = {
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "f16"), "float16"),
    **dict.fromkeys(("float32", "f32"), "float32"),
    **dict.fromkeys(("float64", "f64", "complex64", "c64", "complex128", "c128"), OTHER_DTYPE),
}
_NARROWEST_FIRST = ("float8", "bfloat16", "float16", "float32")


def computes_in(types: Iterable[str], *, convolution: bool) -> str:
    """One of ``values.DTYPES``, or ``OTHER_DTYPE`` if it is none of these or unknown."""
    names = (name.removeprefix("torch.") for name in types)
    texts = {"float8" if name.startswith(("float8", "f8")) else _TYPES.get(name) for name in names}
    narrowest = next((name for name in _NARROWEST_FIRST if name in texts), OTHER_DTYPE)
    return "tf32" if narrowest == "float32" and _allows_tf32(convolution) else narrowest


def _allows_tf32(convolution: bool) -> bool:
    torch = sys.modules["torch"]
    try:
        if convolution:
            return bool(torch.backends.cudnn.allow_tf32)
        return bool(torch.get_float32_matmul_precision() != "highest")
    except RuntimeError:  # since 2.9: the program uses the settings of each backend
        backend = torch.backends.cudnn.conv if convolution else torch.backends.cuda.matmul
        return bool(backend.fp32_precision == "tf32")
