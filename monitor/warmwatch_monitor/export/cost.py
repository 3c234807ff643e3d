"""What compilation cost the hardware, as the ``/status`` answer has it. Unknown is ``null``."""

from __future__ import annotations

from typing import Any

from warmwatch_monitor.export import figures
from warmwatch_monitor.model import RankView, RunView


def energy(view: RankView) -> dict[str, float | None] | None:
    """Joules of a rank's GPUs, since this monitor first saw it.

    ``covered_seconds`` is the compile time that ``compile_joules`` speaks of: less than the
    rank's compile time where the monitor came late.
    """
    spent = view.spending
    if spent is None:
        return None
    return {
        "compile_joules": figures.compile_joules(view),
        "covered_seconds": spent.compile_seconds,
        "joules_per_clean_step": figures.joules_per_clean_step(view),
    }


def run_cost(run: RunView, now_ns: int) -> dict[str, Any]:
    """A run's totals over its ranks here: GPU-seconds and joules spent while they compiled."""
    seconds = [figures.gpu_seconds(view, now_ns) for view in run.ranks]
    known = [one for one in seconds if one is not None]
    joules = [figures.compile_joules(view) for view in run.ranks]
    measured = [one for one in joules if one is not None]
    return {
        "compile_gpu_seconds": sum(known) if known else None,
        "compile_joules": sum(measured) if measured else None,
    }
