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
import inspect
import sys
import threading
from contextvars import ContextVar
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.dynamo.events import (
    FLEX,
    UNFUSED,
    arguments_being_compiled,
    being_compiled,
    code_being_compiled,
)
from warmwatch.hooks.dynamo.variants import has_own_limit, refused_call
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
_BY_THREAD = "recompile_limit"
_of_main_thread: dict[str, Any] = {}
_UNUSED = ("unfused", "instance")  # of what is being compiled
_MOST_CODES = 4096


def note_limit() -> None:
    """Note the main thread's limit, in a compilation of it or at its ``torch.compile``.

    PyTorch keeps its settings by thread from 2.12 on, so another thread may have the default, and
    cannot read those of this one.
    """
    config = sys.modules.get("torch._dynamo.config")
    setting = getattr(config, "_config", {}).get(_BY_THREAD)
    is_by_thread = isinstance(getattr(setting, "user_override", None), ContextVar)
    if is_by_thread and threading.current_thread() is threading.main_thread():
        _of_main_thread[_BY_THREAD] = getattr(config, _BY_THREAD, None)


def install(listener: Listener) -> Installed:
    with look_up():
        import torch

        config, convert_frame = torch._dynamo.config, torch._dynamo.convert_frame
        name = first_of(convert_frame, NAMES)
        original = getattr(convert_frame, name)
    replaced = Replaced()
    hit: OfObjects[bool] = OfObjects(_MOST_CODES)
    _of_main_thread.clear()
    own_limit = "isolate_recompiles" in inspect.signature(torch.compile).parameters
    isolates = {"isolates": True} if own_limit else {}

    def of_thread(setting: str) -> dict[str, Any]:
        """The limit in force, and the main thread's if that is another one."""
        limit = getattr(config, setting, None)
        main = _of_main_thread.get(setting, limit)
        return {"limit": limit} if main == limit else {"limit": limit, "main_limit": main}

    def report_limit(decision: tuple[bool, str]) -> None:
        exceeded, setting = decision
        if not exceeded:
            if not has_own_limit():
                note_limit()
            return
        code = code_being_compiled()
        if code is not None:
            if hit.get(code):
                return
            hit.set(code, True)
        where = {key: value for key, value in being_compiled().items() if key not in _UNUSED}
        call = refused_call(code, arguments_being_compiled())
        values = {"setting": setting, **of_thread(setting), **where, **call, **isolates}
        listener.post("fallback", values)

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

    def check() -> None:
        function = getattr(sys.modules[FLEX], "flex_attention", None)
        constants = getattr(getattr(function, "__code__", None), "co_consts", ())
        if not any(getattr(constant, "co_name", None) == UNFUSED for constant in constants):
            raise HookPointAbsentError(f"{FLEX}.flex_attention")

    return Installed(late={FLEX: check})
