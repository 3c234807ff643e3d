"""Compilers that the training starts as processes of its own, and waits for.

Kernel libraries (FlashInfer, DeepGEMM, TensorRT-LLM) build with ``ninja``, ``nvcc`` or ``g++`` in a
subprocess, without PyTorch. The activity is the wait in ``Popen.wait`` or ``communicate``, to which
all functions of ``subprocess`` lead. A build that nothing waits for holds nobody up. A wait within
another compile event is part of that event.

What does not wait here (``os.system``, a library in C++, a loop over the output) is in the process
tree, which the monitor reads.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from warmwatch.hooks.phases import OUTSIDE
from warmwatch.hooks.points import Installed, Listener, Replaced, untraced
from warmwatch.shared.bounded import OfObjects
from warmwatch.shared.compilers import built_by

_MOST_PROCESSES = 1024
_quietly = functools.partial(untraced, "hooks.child_processes")


def install(listener: Listener) -> Installed:
    replaced = Replaced()
    wanted = [
        (subprocess.Popen, name, _waiting(listener, replaced, getattr(subprocess.Popen, name)))
        for name in ("wait", "communicate")
    ]
    replaced.put_all(wanted)
    return Installed(uninstall=replaced.undo)


def _waiting(
    listener: Listener, replaced: Replaced, original: Callable[..., Any]
) -> Callable[..., Any]:
    first_waits = OfObjects[int](_MOST_PROCESSES)  # when a process was first waited for

    def begins(process: Any, begun: list[str]) -> None:
        """Add the compiler that ``process`` runs, if the wait for it is an activity of its own."""
        name = built_by(process.args)
        if name is None:
            return
        begun.append(name)  # before the activity begins: a KeyboardInterrupt may follow
        if not listener.outside_began(name):
            begun.clear()
        elif first_waits.get(process) is None:
            first_waits.set(process, monotonic_ns())

    def ends(name: str, process: Any) -> None:
        try:
            if process.returncode is not None:  # else the wait timed out, and another may follow
                now = monotonic_ns()
                took = now - (first_waits.pop(process) or now)
                values = {"kind": OUTSIDE, "name": name, "seconds": took / 1e9}
                listener.post("compilation", values)
        finally:
            listener.end(OUTSIDE)

    @functools.wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        # a subclass need not have set what ``Popen`` does
        if not replaced.listening or getattr(self, "returncode", None) is not None:
            return original(self, *args, **kwargs)
        begun: list[str] = []
        try:
            _quietly(begins, self, begun)
            return original(self, *args, **kwargs)
        finally:
            for name in begun:
                _quietly(ends, name, self)

    return wait
