"""Whether compilation is turned off on purpose: by the environment, a stance or a setting.

``TORCHDYNAMO_DISABLE`` makes ``torch.compile`` give back what it was given;
``torch.compiler.set_stance("force_eager")`` and ``torch._dynamo.config.disable`` (which
``TORCH_COMPILE_DISABLE`` sets) let compiled objects run as they were written. None of them has an
event, so the question is asked at rare moments; of stances one is told as they are set.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from warmwatch._guard import report
from warmwatch._seams import Installed, Listener, Replaced, look_up

_VARIABLE = "TORCHDYNAMO_DISABLE"


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo import config, decorators, eval_frame

        original = decorators._set_stance
        _ = (eval_frame._stance.stance, config.disable)
    listening = True

    def disabled() -> str:
        if os.environ.get(_VARIABLE) == "1":
            return "environment"
        if config.disable:
            return "config"
        return "stance" if eval_frame._stance.stance == "force_eager" else ""

    # Not hidden from Dynamo: what it wraps is forbidden in a graph, by a mark that ours then has
    # too, and is to go on being refused there.
    @functools.wraps(original)
    def set_stance(*args: Any, **kwargs: Any) -> Any:
        before = original(*args, **kwargs)
        if listening:
            try:
                listener.turned()
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.disabled", error)
        return before

    replaced = Replaced()

    def uninstall() -> None:
        nonlocal listening
        listening = False
        replaced.undo()

    replaced.put(decorators, "_set_stance", set_stance)
    return Installed(uninstall=uninstall, disabled=disabled)
