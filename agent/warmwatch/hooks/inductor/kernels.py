"""Kernel progress: how many of a graph's kernels are compiled, while Inductor waits for its
workers.

``torch._inductor.async_compile`` counts them with a progress bar, shown or not. The bar is a name
in that module, imported from ``torch.hub`` (torch 2.6 to 2.15; ``tqdm`` if installed, else a small
class). A reporting subclass replaces it there. The module is imported with Inductor, long after
Dynamo, and the agent must not import it (older versions start their workers on import). So each
begin of an event checks for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.imports import is_imported
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up

_MODULE = "torch._inductor.async_compile"


def install(listener: Listener) -> Installed:
    with look_up():
        from torch.compiler import disable

        _ = importlib.import_module("torch.hub").tqdm  # the module imports its bar from here
    replaced = Replaced()
    classes: list[Any] = []  # ours

    def put() -> None:
        module: Any = sys.modules.get(_MODULE)
        if module is None or classes or not isinstance(getattr(module, "tqdm", None), type):
            return
        classes.append(_telling(module.tqdm, listener, disable))
        replaced.put(module, "tqdm", classes[0])

    def uninstall() -> None:
        for one in classes:
            one.listening = False
        replaced.undo()

    put()

    def lacks() -> tuple[str, ...]:
        return ("kernels",) if is_imported(_MODULE) and not classes else ()

    return Installed(uninstall=uninstall, rearm=put, lacks=lacks)


def _telling(original: Any, listener: Listener, disable: Callable[[Any], Any]) -> Any:
    """A subclass of ``original`` that reports. A bar holds only a count of ours, so it and its line
    disappear when PyTorch releases it."""

    def tell(bar: Any, done: int) -> None:
        try:
            if Told.listening:
                total = int(bar._warmwatch[1])
                bar._warmwatch = done, total
                listener.progress("kernels", done, total)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("hooks.kernels", error)

    class Told(original):  # type: ignore[misc]
        listening = True

        @disable
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._warmwatch = 0, kwargs.get("total") or 0
            tell(self, 0)

        @disable
        def update(self, *args: Any, **kwargs: Any) -> Any:
            given = super().update(*args, **kwargs)
            tell(self, self._warmwatch[0] + (args[0] if args else kwargs.get("n", 1)))
            return given

    Told.__name__, Told.__qualname__ = original.__name__, original.__qualname__
    return Told
