"""Functions that do not run compiled: frames at the recompile limit, unfused ``flex_attention``.

A frame that hits the recompile limit compiles for no further inputs. ``convert_frame._compile``
calls one function that decides whether a frame exceeds a limit, and which one. Its return value is
reliable; the warning that follows depends on log levels and wording. With ``fullgraph=True`` each
further call of the frame calls it and raises, so a frame counts once, by its code. Existing entries
keep running compiled. How often the frame runs eagerly is unknown: PyTorch then calls no Python
code.

``flex_attention`` that is called uncompiled compiles a wrapper of its own with the backend
``eager``: its unfused implementation, which materializes all scores. Compiled code has no such
wrapper. Later calls that fit its compiled entry have no event, wherever they are.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.dynamo.events import FLEX, UNFUSED, being_compiled, code_being_compiled
from warmwatch.hooks.points import (
    HookPointAbsentError,
    Installed,
    Listener,
    Replaced,
    first_of,
    look_up,
)
from warmwatch.shared.bounded import OfObjects

# Names of the function, newest first. Torch 2.6 has the second; both return the same pair.
NAMES = ("exceeds_recompile_limit", "exceeds_cache_size_limit")
_NO_PLACE = ("code", "unfused")
_MOST_CODES = 4096


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo import config, convert_frame

        name = first_of(convert_frame, NAMES)
        original = getattr(convert_frame, name)
    replaced = Replaced()
    hit: OfObjects[bool] = OfObjects(_MOST_CODES)

    def report_limit(decision: tuple[bool, str]) -> None:
        exceeded, setting = decision
        if not exceeded:
            return
        code = code_being_compiled()
        if code is not None:
            if hit.get(code):
                return
            hit.set(code, True)
        limit = getattr(config, setting, None)
        where = {key: value for key, value in being_compiled().items() if key not in _NO_PLACE}
        listener.fallback({"setting": setting, "limit": limit, **where})

    @functools.wraps(original)
    def decide(*args: Any, **kwargs: Any) -> Any:
        decision = original(*args, **kwargs)
        if replaced.listening:
            quietly("hooks.recompile_limit", report_limit, decision)
        return decision

    replaced.put(convert_frame, name, decide)
    return Installed(uninstall=replaced.undo)


def check_flex_attention(listener: Listener) -> Installed:  # noqa: ARG001 - as every install
    """Install nothing; check that ``flex_attention`` has the wrapper by which it is recognized."""
    with look_up():
        from torch.compiler import disable

    def check() -> None:
        function = getattr(sys.modules[FLEX], "flex_attention", None)
        constants = getattr(getattr(function, "__code__", None), "co_consts", ())
        if not any(getattr(one, "co_name", None) == UNFUSED for one in constants):
            raise HookPointAbsentError(f"{FLEX}.flex_attention")

    return Installed(late={FLEX: disable(check)})
