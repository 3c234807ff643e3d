"""``torch.export``: it traces a whole model, for minutes if that is large, between two steps.

A strict export traces with Dynamo, and PyTorch then drops what the training has compiled (not up to
2.6). Other exports have no compile event at all. All ways lead to ``_export``, except
``export_for_training`` of 2.6, of which Dynamo's events remain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from warmwatch.hooks.phases import CUSTOM
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, untraced
from warmwatch.shared.values import EXPORT, STRICT_EXPORT

MODULE = "torch.export._trace"
_quietly = functools.partial(untraced, "hooks.export")


def install(listener: Listener) -> Installed:
    with look_up():
        from torch.export import _trace

        original = _trace._export
    replaced = Replaced()
    replaced.put(_trace, "_export", _exporting(listener, replaced, original))
    return Installed(uninstall=replaced.undo)


def _exporting(
    listener: Listener, replaced: Replaced, original: Callable[..., Any]
) -> Callable[..., Any]:
    def begins(name: str) -> int:
        listener.begin(CUSTOM, {"name": name, "kind": CUSTOM})
        return monotonic_ns()

    def ends(name: str, began: int, raised: BaseException | None) -> None:
        seconds = (monotonic_ns() - began) / 1e9
        values: dict[str, Any] = {"kind": CUSTOM, "name": name, "seconds": seconds}
        if isinstance(raised, Exception):  # any other BaseException is an interruption
            values["failure"] = type(raised).__name__
        try:
            listener.post("compilation", values)
        finally:
            listener.end(CUSTOM)

    @functools.wraps(original)
    def export(*args: Any, **kwargs: Any) -> Any:
        name = STRICT_EXPORT if kwargs.get("strict", True) else EXPORT
        began = _quietly(begins, name) if replaced.listening else None
        raised: BaseException | None = None
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            raised = error
            raise
        finally:
            if began is not None:
                _quietly(ends, name, began, raised)
            raised = None  # no cycle of a frame and its exception

    return export
