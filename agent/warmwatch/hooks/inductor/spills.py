"""Registers that the Triton kernels of a compiled graph spill to memory.

``AsyncCompile.wait`` returns when all kernels of a graph are compiled (torch 2.6 to 2.15); its
argument maps their names to them. Kernels that are only candidates of an autotuning never get
there. A kernel with one launcher runs that one. A kernel with several benchmarks them at its first
run, and the fastest one stays. Launchers have the driver's count of spilled registers. An ordinary
launch calls none of these functions.

A kernel that is tuned further after its benchmark (coordinate descent, combined kernels) is not
reported: no function of its own shows which launcher it keeps.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up
from warmwatch.shared.bounded import OfObjects

_MODULE, _KERNELS = "torch._inductor.async_compile", "torch._inductor.runtime.triton_heuristics"
_CLASS, _WAIT = "AsyncCompile", "wait"
_KERNEL, _BENCHMARK = "CachingAutotuner", "benchmark_all_configs"
_MOST_KERNELS = 10_000
_LONGEST_NAME = 200
_TUNED_FURTHER = ("coordinate_descent_tuning", "combo_tuning_groups")


class Spills:
    """Reports the spills of each kernel once its launcher is known."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._several: OfObjects[str] = OfObjects(_MOST_KERNELS)

    def compiled(self, kernels: Mapping[str, Any], kind: type[Any]) -> None:
        """The kernels of a graph, those of class ``kind`` among other values."""
        for name, kernel in tuple(kernels.items()):
            if not isinstance(kernel, kind):
                continue
            if any(kernel.inductor_meta.get(setting) for setting in _TUNED_FURTHER):
                continue
            if len(kernel.launchers) == 1:
                self._report(name, kernel.launchers[0], None)
            else:
                self._several.set(kernel, name)

    def benchmarked(self, kernel: Any, milliseconds: Mapping[Any, float]) -> None:
        """The launchers of ``kernel`` were measured: it keeps the fastest, as PyTorch chooses."""
        name = self._several.pop(kernel)
        if name is not None and milliseconds:
            best = min(milliseconds, key=milliseconds.__getitem__)
            took = milliseconds[best]
            self._report(name, best, took / 1e3 if math.isfinite(took) else None)

    def _report(self, name: str, launcher: Any, seconds: float | None) -> None:
        registers = getattr(launcher, "n_spills", None)
        if isinstance(registers, int) and registers > 0:
            values: dict[str, Any] = {"kernel": name[:_LONGEST_NAME], "registers": registers}
            if seconds is not None:
                values["seconds"] = round(seconds, 9)
            self._listener.post("spill", values)


def install(listener: Listener) -> Installed:
    replaced, spills = Replaced(), Spills(listener)
    wrapped: list[Any] = []  # the class of kernels, once its module is imported

    def report(kernels: Mapping[str, Any]) -> None:
        kind = getattr(sys.modules.get(_KERNELS), _KERNEL, None)
        if not replaced.listening or kind is None:
            return
        if kind not in wrapped:
            original = getattr(kind, _BENCHMARK)
            wrapped.append(kind)
            replaced.put(kind, _BENCHMARK, _benchmarking(original, benchmarked))
        spills.compiled(kernels, kind)

    def benchmarked(kernel: Any, milliseconds: Mapping[Any, float]) -> None:
        if replaced.listening:
            spills.benchmarked(kernel, milliseconds)

    def put() -> None:
        with look_up():
            owner = getattr(sys.modules[_MODULE], _CLASS)
            original = getattr(owner, _WAIT)
        replaced.put(owner, _WAIT, _waiting(original, report))

    return Installed(uninstall=replaced.undo, late={_MODULE: put})


def _waiting(original: Callable[..., Any], report: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(compiler: Any, *args: Any, **kwargs: Any) -> Any:
        given = original(compiler, *args, **kwargs)
        quietly("hooks.spills", report, args[0] if args else kwargs.get("scope") or {})
        return given

    return wait


def _benchmarking(original: Callable[..., Any], report: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def benchmark_all_configs(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        milliseconds = original(kernel, *args, **kwargs)
        quietly("hooks.spills", report, kernel, milliseconds)
        return milliseconds

    return benchmark_all_configs
