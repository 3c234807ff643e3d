"""A compilation that takes far too long: what it is held against, and whether it works. Pure.

What works may still come to an end, or loop; where nothing of it is busy it hangs. Of a rank of
another host, and at a first look, nobody knows which.
"""

from __future__ import annotations

from warmwatch.verdict import LONG_COMPILE_FLOOR_NS, LONG_COMPILE_TIMES
from warmwatch_monitor.export.words.wording import counted, duration
from warmwatch_monitor.model import Compiler, RankView

IDLE_SECONDS = 5.0  # so long is no pause between two pieces of work
_WORKING = 0.05  # of a core


def long_compile(view: RankView) -> str:
    """``one compilation takes 12 min, the longest before took 48 s; nothing of it is busy...``."""
    activity = view.figures.compile.open
    took = f" takes {duration(activity.seconds)}" if activity else " takes too long"
    return "; ".join(filter(None, [f"one compilation{took}, {_against(view)}", at_work(view)]))


def too_long(view: RankView) -> str:
    """The same behind words that have said how long it takes: ``too long: the longest before...``.

    They go by the same clock, see ``states.elapsed``.
    """
    return "; ".join(filter(None, [f"too long: {_against(view)}", at_work(view)]))


def _against(view: RankView) -> str:
    progress = view.figures.progress
    limit, before = progress.compile_limit_seconds, progress.compile_precedent_seconds
    if before is not None and (limit is None or limit >= _explained_by(before)):
        return f"the longest before took {duration(before)}"
    return f"the limit is {duration(limit)}" if limit is not None else "longer than any explains"


def _explained_by(before: float) -> float:
    """Seconds that are not long beside what took so many before."""
    return max(LONG_COMPILE_FLOOR_NS / 1e9, LONG_COMPILE_TIMES * before)


def at_work(view: RankView) -> str:
    """What of it is busy: it works; nothing is: it hangs; empty where nobody can tell."""
    process = view.process
    if process is None:
        return ""
    if process.stopped:
        return "its process is stopped"
    if stopped := next((one for one in process.compilers if one.stopped), None):
        return f"{_named(stopped)} is stopped: it hangs until it is let go on"
    if busy := next((one for one in process.compilers if one.busy), None):
        return f"{_named(busy)} is busy ({duration(busy.cpu_seconds)} of CPU): it works, or loops"
    if process.workers_busy:
        return f"{counted(process.workers_busy, 'compile worker')} busy: it works, or loops"
    if process.cpu_ratio is not None and process.cpu_ratio >= _WORKING:
        used = f"{100 * process.cpu_ratio:.0f} % of a core"
        return f"its process is busy ({used}): it works, or loops"
    if view.idle_seconds is not None and view.idle_seconds >= IDLE_SECONDS:
        return f"nothing of it is busy, for {duration(view.idle_seconds)} now: it hangs"
    return ""


def _named(one: Compiler) -> str:
    return f"{one.name} (pid {one.pid})"
