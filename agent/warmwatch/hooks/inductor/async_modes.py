"""Whether Inductor compiles in the background: ``TORCHINDUCTOR_FX_COMPILE_MODE``.

Compiled code is swapped in later without an event, so a rank in such a mode is never called warm.
Off by default, and absent from older versions.
"""

from __future__ import annotations

import sys

from warmwatch.hooks.points import Installed, Listener, look_up

_MODULE = "torch._inductor.compile_fx"
# each with the first version known to have it
_MODES = {"fx_compile_async": (2, 8), "fx_compile_progressive": (2, 11)}


def install(listener: Listener) -> Installed:  # noqa: ARG001 - the signature of every install
    with look_up():
        from torch import __version__ as version
    expected = [mode for mode, since in _MODES.items() if version >= since]

    def is_asynchronous() -> bool:
        module = sys.modules.get(_MODULE)
        return any(bool(getattr(module, mode, False)) for mode in _MODES)

    def lacks() -> tuple[str, ...]:
        module = sys.modules.get(_MODULE)
        if module is None or getattr(module, "__spec__", None) is None:
            return ()
        if getattr(module.__spec__, "_initializing", False):  # it is being imported
            return ()
        return () if all(hasattr(module, mode) for mode in expected) else ("async_modes",)

    return Installed(asynchronous=is_asynchronous, lacks=lacks)
