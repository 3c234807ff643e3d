"""All reasons of a recompile: one for each compiled entry of the frame whose guards failed.

The metrics contain only the newest entry's reason. After an evaluation that is ``grad_mode`` for
every recompile, although a guard of the training's own entry is the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.dynamo.compilations import place
from warmwatch.hooks.dynamo.reason_categories import category_of, most_specific_first
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up

# Its name in torch 2.7 and later, and the one in 2.6: the same call, the same list of reasons.
_FUNCTIONS = (
    "get_and_maybe_log_recompilation_reasons",
    "get_and_maybe_log_recompilation_reason",
)


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo import convert_frame
        from torch.compiler import disable

        name = next((name for name in _FUNCTIONS if hasattr(convert_frame, name)), _FUNCTIONS[0])
        original = getattr(convert_frame, name)
    listening = True

    def reasons_of(*args: Any, **kwargs: Any) -> Any:
        reasons = original(*args, **kwargs)
        if listening:
            try:
                if reason := most_specific_first(reasons):
                    listener.recompile(reason, category_of(reason), _where(args, kwargs))
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.recompile_reasons", error)
        return reasons

    replaced = Replaced()

    def uninstall() -> None:
        nonlocal listening
        listening = False
        replaced.undo()

    replaced.put(convert_frame, name, disable(reasons_of))
    return Installed(uninstall=uninstall)


def _where(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The function that is recompiled; the frame is the second argument in every version."""
    frame = args[1] if len(args) > 1 else kwargs.get("frame")
    code = getattr(frame, "f_code", None)
    return {} if code is None else place(code.co_name, code.co_filename, code.co_firstlineno)
