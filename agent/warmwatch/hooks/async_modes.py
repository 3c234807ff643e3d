"""Whether Inductor compiles aside: ``TORCHINDUCTOR_FX_COMPILE_MODE`` async or progressive.

Compiled code is then swapped in later, with no event that anybody could listen to, so a rank in
such a mode is never called warm. Off by default, and absent from older versions.
"""

from __future__ import annotations

import sys

from warmwatch._seams import Installed, Listener

_MODULE = "torch._inductor.compile_fx"
_MODES = ("fx_compile_async", "fx_compile_progressive")


def install(listener: Listener) -> Installed:  # noqa: ARG001 - every seam's signature
    def is_asynchronous() -> bool:
        module = sys.modules.get(_MODULE)
        return any(bool(getattr(module, mode, False)) for mode in _MODES)

    return Installed(asynchronous=is_asynchronous)
