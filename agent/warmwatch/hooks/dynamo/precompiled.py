"""Code that was compiled ahead of time: it runs without any compile event.

Loading has no event either, and may come before the agent. So this file detects that such code
*runs*: each class that calls it gets a wrapper, which reports the first call and restores the
original. Later calls cost nothing, and earlier objects are seen too. A library that only defines
such code, such as a function scripted at import, runs nothing.

TorchScript stores the last graph that the calling thread executed, so it needs no wrapper. The
agent reads that rarely, on the thread that marks the steps.

Inductor replays its own CUDA graphs through the same class; those do not count.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, untraced

# Module, class and method that call such code, and its name in ``PRECOMPILED``.
_CALLS = (
    ("torch.export.pt2_archive._package", "AOTICompiledModel", "__call__", "aoti"),
    ("torch._inductor.package.package", "AOTICompiledModel", "__call__", "aoti"),  # torch 2.6
    ("torch._dynamo.aot_compile", "AOTCompiledFunction", "__call__", "precompile"),
    ("torch._dynamo.aot_compile", "AOTCompiledModel", "__call__", "precompile"),
    ("torch._precompile", "PrecompiledRunnable", "__call__", "precompile"),  # torch 2.15
    ("torch_tensorrt.dynamo.runtime", "PythonTorchTensorRTModule", "forward", "tensorrt"),
    ("torch_tensorrt.dynamo.runtime", "TorchTensorRTModule", "forward", "tensorrt"),
    ("torch.cuda.graphs", "CUDAGraph", "replay", "cudagraph"),
)
MODULES = ("torch.export.pt2_archive._package", "torch._inductor.package.package")
TENSORRT = "torch_tensorrt.dynamo.runtime"
_OF_INDUCTOR = "torch._inductor."


def install(listener: Listener) -> Installed:
    """Wrap everything imported so far, and the rest once it is imported."""
    with look_up():
        from torch._C import _last_executed_optimized_graph as last_script
    names: set[str] = set()
    calls = _FirstCalls(listener, names)

    def kinds() -> tuple[str, ...]:
        if "jit" not in names and last_script() is not None:
            names.add("jit")
        return tuple(names)

    late = {module: calls.put_all for module, *_ in _CALLS}
    return Installed(uninstall=calls.remove, late=late, precompiled=kinds)


def install_late(listener: Listener) -> Installed:
    """Wrap what a newly imported module runs."""
    calls = _FirstCalls(listener, set())
    calls.put_all()
    return Installed(uninstall=calls.remove)


class _FirstCalls:
    """Wrappers around the methods of ``_CALLS``, each until its first call.

    ``found`` collects the names of the called ones.
    """

    def __init__(self, listener: Listener, names: set[str]) -> None:
        self._listener, self._found = listener, names
        self._listening = True
        self._placed: dict[tuple[int, str], Replaced] = {}

    def put_all(self) -> None:
        """Wrap each method that exists by now and was not called yet."""
        for owner, method, kind in self._there() if self._listening else ():
            if kind in self._found or (id(owner), method) in self._placed:
                continue
            original = vars(owner)[method]
            if not hasattr(original, "_warmwatch_kind"):  # else another hook point has wrapped it
                self._placed[id(owner), method] = placed = Replaced()
                placed.put(owner, method, self._around(original, kind, placed))

    def _there(self) -> Iterator[tuple[Any, str, str]]:
        for module, name, method, kind in _CALLS:
            owner = getattr(sys.modules.get(module), name, None)
            if isinstance(owner, type) and method in vars(owner):
                yield owner, method, kind

    def _around(
        self, original: Callable[..., Any], kind: str, placed: Replaced
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            untraced("hooks.precompiled", placed.undo)  # two threads may call it in the same moment
            untraced("hooks.precompiled", self._called, kind, sys._getframe(1))
            return original(*args, **kwargs)

        call._warmwatch_kind = kind  # type: ignore[attr-defined]
        return call

    def _called(self, kind: str, caller: Any) -> None:
        of_inductor = str(caller.f_globals.get("__name__")).startswith(_OF_INDUCTOR)
        if self._listening and not (kind == "cudagraph" and of_inductor):
            self._found.add(kind)
            self._listener.post("precompiled", {"kind": kind})

    def remove(self) -> None:
        self._listening = False
        for placed in self._placed.values():
            placed.undo()
