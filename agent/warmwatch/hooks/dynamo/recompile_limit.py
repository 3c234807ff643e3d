"""The recompile limit: a frame that hits it compiles for no further inputs.

``convert_frame._compile`` calls one function that decides whether a frame exceeds a limit, and
which one. Its return value is reliable; the warning that follows depends on log levels and wording.
With ``fullgraph=True`` each further call of the frame calls it and raises, so a frame counts once,
by its code. Existing entries keep running compiled.
"""

from __future__ import annotations

import functools
import weakref
from types import CodeType
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.dynamo.compilations import being_compiled, code_being_compiled
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up

# Its name in torch 2.7 and later, and the one in 2.6: the same arguments, the same pair.
_FUNCTIONS = ("exceeds_recompile_limit", "exceeds_cache_size_limit")


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo import config, convert_frame

        name = next((name for name in _FUNCTIONS if hasattr(convert_frame, name)), _FUNCTIONS[0])
        original = getattr(convert_frame, name)
    listening = True
    hit: weakref.WeakSet[CodeType] = weakref.WeakSet()

    def tell(setting: str) -> None:
        code = code_being_compiled()
        if code is not None:
            if code in hit:
                return
            hit.add(code)
        limit = getattr(config, setting, None)
        where = {key: value for key, value in being_compiled().items() if key != "code"}
        listener.fallback({"setting": setting, "limit": limit, **where})

    @functools.wraps(original)
    def decide(*args: Any, **kwargs: Any) -> Any:
        decision = original(*args, **kwargs)
        if listening:
            try:
                exceeded, setting = decision
                if exceeded:
                    tell(setting)
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.recompile_limit", error)
        return decision

    replaced = Replaced()

    def uninstall() -> None:
        nonlocal listening
        listening = False
        replaced.undo()

    replaced.put(convert_frame, name, decide)
    return Installed(uninstall=uninstall)
