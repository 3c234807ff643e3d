"""Autotuning progress: how many of a kernel's choices are measured (``max_autotune``).

``AlgorithmSelectorCache.benchmark_choices`` measures them one by one with ``benchmark_choice`` in
this process (torch 2.8 to 2.15 with ``autotune_in_subproc`` off; other versions report no
progress). Both are class methods, looked up at each call. The module is imported with Inductor,
long after Dynamo, and the agent must not import it.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import HookPointAbsentError, Installed, Listener, Replaced, look_up

_MODULE = "torch._inductor.select_algorithm"
_SINCE = (2, 7)
_quietly = functools.partial(quietly, "hooks.choices")


class _Thread(threading.local):
    """Progress of the calling thread's measurements: ``done`` of ``total``."""

    def __init__(self) -> None:
        self.done = self.total = 0


class _Reporter:
    """Turns calls of the wrapped methods into listener calls."""

    def __init__(self, listener: Listener) -> None:
        self.listening, self._listener, self._thread = True, listener, _Thread()

    def begins(self, choices: Any) -> None:
        self._thread.done, self._thread.total = 0, len(choices)
        self._report()

    def measured(self) -> None:
        if self._thread.total:
            self._thread.done += 1
            self._report()

    def ends(self) -> None:
        self._thread.done = self._thread.total  # also if it was interrupted
        self._report()
        self._thread.total = 0

    def _report(self) -> None:
        if self._thread.total:
            self._listener.progress("choices", self._thread.done, self._thread.total)


def install(listener: Listener) -> Installed:
    with look_up():
        from torch import __version__ as version
        from torch._dynamo.decorators import skip
        from torch.compiler import disable

    if version < _SINCE:  # older versions do everything in one nested function
        raise HookPointAbsentError(f"{_MODULE}.benchmark_choices")
    reporter, replaced, looking = _Reporter(listener), Replaced(), True
    lacking: list[str] = []

    def put() -> None:
        nonlocal looking
        owner = getattr(sys.modules.get(_MODULE), "AlgorithmSelectorCache", None)
        if owner is None or not looking:
            return
        all_of_them, one = (
            getattr(vars(owner).get(name), "__func__", None)
            for name in ("benchmark_choices", "benchmark_choice")
        )
        looking = False
        if all_of_them is not None and one is not None:
            ours = {
                "benchmark_choices": _all(reporter, all_of_them),
                "benchmark_choice": _one(reporter, one),
            }
            replaced.put_all((owner, name, classmethod(skip(f))) for name, f in ours.items())
        else:
            lacking.append("choices")

    def uninstall() -> None:
        nonlocal looking
        reporter.listening = looking = False
        replaced.undo()

    return Installed(uninstall=uninstall, late={_MODULE: disable(put)}, lacks=lambda: lacking)


def _all(reporter: _Reporter, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def benchmark_choices(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not reporter.listening:
            return original(cls, *args, **kwargs)
        _quietly(lambda: reporter.begins(args[0] if args else kwargs["choices"]))
        try:
            return original(cls, *args, **kwargs)
        finally:
            _quietly(reporter.ends)

    return benchmark_choices


def _one(reporter: _Reporter, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def benchmark_choice(cls: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(cls, *args, **kwargs)
        finally:
            if reporter.listening:
                _quietly(reporter.measured)

    return benchmark_choice
