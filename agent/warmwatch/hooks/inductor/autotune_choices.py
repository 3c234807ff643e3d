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
from warmwatch.hooks.points import (
    HookPointAbsentError,
    Installed,
    Listener,
    Replaced,
    look_up,
    skip_frames,
    torch_version,
)

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
        done, total = self._thread.done, self._thread.total
        if total:
            values = {"subject": "choices", "done": done, "total": total}
            self._listener.post("progress", values)


def install(listener: Listener) -> Installed:
    if torch_version() < _SINCE:  # older versions do everything in one nested function
        raise HookPointAbsentError(f"{_MODULE}.benchmark_choices")
    reporter, replaced = _Reporter(listener), Replaced()

    def put() -> None:
        with look_up():
            owner = sys.modules[_MODULE].AlgorithmSelectorCache
            ours = {
                "benchmark_choices": _all(reporter, owner.benchmark_choices.__func__),
                "benchmark_choice": _one(reporter, owner.benchmark_choice.__func__),
            }
        skip_frames(*ours.values())
        replaced.put_all((owner, name, classmethod(f)) for name, f in ours.items())

    def uninstall() -> None:
        reporter.listening = False
        replaced.undo()

    return Installed(uninstall=uninstall, late={_MODULE: put})


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
