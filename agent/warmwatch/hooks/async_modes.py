"""Whether Inductor compiles aside: ``TORCHINDUCTOR_FX_COMPILE_MODE`` async or progressive.

Compiled code is then swapped in later, with no event that anybody could listen to, so a rank in
such a mode is never called warm. Off by default, and absent from older versions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warmwatch._agent import Agent

_MODULE = "torch._inductor.compile_fx"
_MODES = ("fx_compile_async", "fx_compile_progressive")


def install(agent: Agent) -> Callable[[], None]:
    def is_asynchronous() -> bool:
        module = sys.modules.get(_MODULE)
        return any(bool(getattr(module, mode, False)) for mode in _MODES)

    agent.is_asynchronous = is_asynchronous
    return lambda: None
