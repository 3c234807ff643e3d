"""Metrics of a rank's compiler, in the order of ``/metrics``.

Names, types, labels and texts are those of ``figures/compile.py``.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from warmwatch_monitor.figures.compile import (
    Compile,
    CompileWorkers,
    Counted,
    Energy,
    Estimate,
    GpuSeconds,
    OpenActivity,
    Phase,
)
from warmwatch_monitor.metrics.families import Series, series_of, shared
from warmwatch_monitor.model import RankView


def _open(view: RankView) -> OpenActivity | None:
    return view.figures.compile.open if view.judgement.compiling else None


def _counted(view: RankView, name: str) -> dict[str, float] | None:
    counted = activity.counted if (activity := _open(view)) else None
    return {counted.of: getattr(counted, name)} if counted else None


def _estimate(view: RankView) -> Estimate | None:
    return view.estimate if view.judgement.compiling else None


def _workers(view: RankView) -> dict[str, float] | None:
    workers = view.figures.workers
    return None if workers is None else {"busy": workers.busy, "idle": workers.idle}


_NAMES = ("done", "total")
COMPILE_SERIES: tuple[Series[RankView], ...] = (
    shared(Phase, attrgetter("judgement.phase")),
    *series_of(Counted, _open, {name: partial(_counted, name=name) for name in _NAMES}),
    *series_of(OpenActivity, _open),
    *series_of(Estimate, _estimate),
    *series_of(Compile, attrgetter("figures.compile")),
    shared(CompileWorkers, _workers),
    shared(GpuSeconds, attrgetter("compile_gpu_seconds")),
    *series_of(Energy, attrgetter("energy")),
)
