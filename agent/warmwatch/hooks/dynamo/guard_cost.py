"""Time of guard checks, for ``modes`` and ``doctor``: PyTorch's profiler, for half a second.

Those commands measure the steps first. Then they create the file ``REQUEST`` in the folder of the
losses, and this profiles the CPU from the next step on. PyTorch records one event for each look-up
of compiled code, which checks its guards. For the code that then runs it records another event,
with the compile id. A program that uses a profiler itself is left alone: if its profiler begins
meanwhile, this one ends first, or the two would end each other.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from warmwatch.hooks.points import Replaced, untraced
from warmwatch.shared.record.loss_file import GUARDS, REQUEST, pack_guards

_EVENT, _RUNS = "TorchDynamo Cache Lookup", "Torch-Compiled Region: "
# of ``torch.autograd.profiler``: what each profiler of a program calls
_BEGINS = ("_prepare_profiler", "_enable_profiler")
_LEAST_NS, _LEAST_STEPS = 5 * 10**8, 3
_MOST_NS = 10 * 10**9  # steps that take longer are measured once


class GuardCost:
    """Measures once. :meth:`passed` is called at each backward pass, with the steps so far."""

    def __init__(self, torch: Any, folder: Path, name: str) -> None:
        self._torch, self._request = torch, folder / REQUEST
        self._result = folder / f"{name}{GUARDS}"
        self._profiler: Any = None
        self._steps: int | None = None  # at the pass before
        self._began = (0, 0)  # steps, nanoseconds
        module, self._replaced, self._is_ours = torch.autograd.profiler, Replaced(), False
        self._over = not all(hasattr(module, name) for name in _BEGINS)
        if not self._over:
            begins = [(module, name, self._noticing(getattr(module, name))) for name in _BEGINS]
            self._replaced.put_all(begins)

    def _noticing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original, updated=())
        def begin(*args: Any, **kwargs: Any) -> Any:
            if not self._is_ours:
                untraced("hooks.losses", self.stop)
            return original(*args, **kwargs)

        return begin

    def stop(self) -> None:
        """Measure nothing from now on."""
        self._over, profiled = True, self._profiler
        self._profiler = None
        self._replaced.undo()
        if profiled is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                profiled.stop()

    def passed(self, steps: int) -> None:
        """Begin or end at the first pass after a step, so that whole steps are measured."""
        before, self._steps = self._steps, steps
        if self._over or steps == before:
            return
        if self._profiler is None:
            if before is not None and self._request.exists():
                self._begin(steps)
            return
        took, count = time.monotonic_ns() - self._began[1], steps - self._began[0]
        if (took >= _LEAST_NS and count >= _LEAST_STEPS) or took >= _MOST_NS:
            self._end(count)

    def _begin(self, steps: int) -> None:
        profiler = self._torch.profiler
        if self._torch.autograd._profiler_enabled():
            self.stop()
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            profiled = profiler.profile(activities=[profiler.ProfilerActivity.CPU])
            self._over = self._is_ours = True
            profiled.start()
            self._over = self._is_ours = False
        self._profiler, self._began = profiled, (steps, time.monotonic_ns())

    def _end(self, count: int) -> None:
        profiled = self._profiler
        self.stop()
        # not its ``events()``, which builds a Python object of each operation
        events = profiled.profiler.kineto_results.events()
        rows = sorted(
            (e.start_ns(), e.duration_ns(), e.name())
            for e in events
            if e.name().startswith((_EVENT, _RUNS))
        )
        lookups = [took for _, took, name in rows if name == _EVENT]
        each, frames = of_a_step(lookups, count) / 1e9, Counter[str]()
        for (_, took, name), (*_, runs) in pairwise(rows):
            if name == _EVENT != runs:
                frames[runs.removeprefix(_RUNS).partition("/")[0]] += took
        in_all = sum(lookups) or 1  # look-ups may all be shorter than a nanosecond of its clock
        shares = {frame: each * took / in_all for frame, took in frames.items()}
        part = self._result.with_suffix(".part")
        part.write_text(pack_guards(each, shares))
        part.replace(self._result)


def of_a_step(lookups: Sequence[int], steps: int) -> float:
    """Nanoseconds of the look-ups in a step, from those of ``steps`` steps in order.

    The median step, so that a moment in which another program had the core does not count. If
    the steps made unequal numbers of them, the mean.
    """
    each, rest = divmod(len(lookups), steps)
    if rest or not each:
        return sum(lookups) / steps
    return median(sum(lookups[at : at + each]) for at in range(0, len(lookups), each))
