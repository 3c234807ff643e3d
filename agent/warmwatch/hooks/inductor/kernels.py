"""What Inductor compiles outside the training's thread: kernels on its workers, whole graphs.

Kernel progress: while Inductor waits for its workers, ``torch._inductor.async_compile`` counts a
graph's kernels with a progress bar, shown or not. The bar is a name in that module, imported from
``torch.hub`` (torch 2.6 to 2.15; ``tqdm`` if installed, else a small class). A reporting subclass
replaces it there. The module is imported with Inductor, long after Dynamo, and the agent must not
import it: older versions start their workers on import.

Whole graphs compile in the background with ``TORCHINDUCTOR_FX_COMPILE_MODE``. Compiled code is then
swapped in later without an event, so a rank in such a mode is never called warm. Off by default,
and absent from older versions.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import (
    HookPointAbsentError,
    Installed,
    Listener,
    Replaced,
    look_up,
    torch_version,
)

_MODULE = "torch._inductor.async_compile"


def install(listener: Listener) -> Installed:
    with look_up():
        from torch.compiler import disable

        _ = importlib.import_module("torch.hub").tqdm  # the module imports its bar from here
    replaced = Replaced()
    classes: list[Any] = []  # ours

    def put() -> None:
        module: Any = sys.modules[_MODULE]
        with look_up():
            original = module.tqdm
        if not isinstance(original, type):
            raise HookPointAbsentError(f"{_MODULE}.tqdm")
        classes.append(_reporting(original, listener, disable))
        replaced.put(module, "tqdm", classes[0])

    def uninstall() -> None:
        for value in classes:
            value.listening = False
        replaced.undo()

    return Installed(uninstall=uninstall, late={_MODULE: put})


def _reporting(original: Any, listener: Listener, disable: Callable[[Any], Any]) -> Any:
    """A subclass of ``original`` that reports. A bar stores only two numbers of the agent's, so
    nothing keeps it, and its line on the screen, once PyTorch has released it."""

    def report_progress(bar: Any, done: int) -> None:
        if ReportingBar.listening:
            total = int(bar._warmwatch[1])
            bar._warmwatch = done, total
            listener.post("progress", {"subject": "kernels", "done": done, "total": total})

    class ReportingBar(original):  # type: ignore[misc]
        listening = True

        @disable
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._warmwatch = 0, kwargs.get("total") or 0
            quietly("hooks.kernels", report_progress, self, 0)

        @disable
        def update(self, *args: Any, **kwargs: Any) -> Any:
            given = super().update(*args, **kwargs)
            done = self._warmwatch[0] + (args[0] if args else kwargs.get("n", 1))
            quietly("hooks.kernels", report_progress, self, done)
            return given

    ReportingBar.__name__, ReportingBar.__qualname__ = original.__name__, original.__qualname__
    return ReportingBar


_FX = "torch._inductor.compile_fx"
# each with the first version known to have it
_MODES = {"fx_compile_async": (2, 8), "fx_compile_progressive": (2, 11)}


def install_async_modes(listener: Listener) -> Installed:  # noqa: ARG001 - the signature of every install
    version = torch_version()
    expected = [mode for mode, since in _MODES.items() if version >= since]

    def is_asynchronous() -> bool:
        module = sys.modules.get(_FX)
        return any(bool(getattr(module, mode, False)) for mode in _MODES)

    def check() -> None:
        for mode in expected:
            if not hasattr(sys.modules[_FX], mode):
                raise HookPointAbsentError(f"{_FX}.{mode}")

    return Installed(asynchronous=is_asynchronous, late={_FX: check})
