"""Autotuning progress: how many of a kernel's choices are measured (``max_autotune``).

``AlgorithmSelectorCache.benchmark_choices`` measures them one by one with ``benchmark_choice``, in
this process (torch 2.8 to 2.15, where ``autotune_in_subproc`` is off; in others nobody counts).
Both are class methods, found by name at each call. The module comes with Inductor, long after
Dynamo, and is not for us to load, so it is looked for whenever an event begins.
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
    """Of what the calling thread measures: how many are done, and of how many."""

    def __init__(self) -> None:
        self.done = self.total = 0


class _Ear:
    """Turns what the wrapped methods see into what a listener is told."""

    def __init__(self, listener: Listener) -> None:
        self.listening, self._listener, self._thread = True, listener, _Thread()

    def begins(self, choices: Any) -> None:
        self._thread.done, self._thread.total = 0, len(choices)
        self._tell()

    def measured(self) -> None:
        if self._thread.total:
            self._thread.done += 1
            self._tell()

    def ends(self) -> None:
        self._thread.done = self._thread.total  # also where it was broken off
        self._tell()
        self._thread.total = 0

    def _tell(self) -> None:
        if self._thread.total:
            self._listener.progress("choices", self._thread.done, self._thread.total)


def install(listener: Listener) -> Installed:
    with look_up():
        from torch import __version__ as version
        from torch._dynamo.decorators import skip

    if version < _SINCE:  # before, one nested function does it all
        raise HookPointAbsentError(f"{_MODULE}.benchmark_choices")
    ear, replaced, looking = _Ear(listener), Replaced(), True
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
            ours = {"benchmark_choices": _all(ear, all_of_them), "benchmark_choice": _one(ear, one)}
            replaced.put_all((owner, name, classmethod(skip(f))) for name, f in ours.items())
        else:
            lacking.append("choices")

    def uninstall() -> None:
        nonlocal looking
        ear.listening = looking = False
        replaced.undo()

    put()
    return Installed(uninstall=uninstall, rearm=put, lacks=lambda: lacking)


def _all(ear: _Ear, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def benchmark_choices(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not ear.listening:
            return original(cls, *args, **kwargs)
        _quietly(lambda: ear.begins(args[0] if args else kwargs["choices"]))
        try:
            return original(cls, *args, **kwargs)
        finally:
            _quietly(ear.ends)

    return benchmark_choices


def _one(ear: _Ear, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def benchmark_choice(cls: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(cls, *args, **kwargs)
        finally:
            if ear.listening:
                _quietly(ear.measured)

    return benchmark_choice
