"""Ranks that wait in a collective for one that compiles: when that gives up. Pure.

A collective begins when the first rank comes to it, which nobody sees. It cannot have been before
the rank last moved (a step, the end of an activity), nor before the one that compiles began to: so
what is said to be left is the least that may be.
"""

from __future__ import annotations

from msgspec import Struct

from warmwatch_monitor.export.words.clauses import Clause, Importance
from warmwatch_monitor.export.words.wording import duration
from warmwatch_monitor.model import RankView, RunView

ADVICE = (
    "Raise the timeout before the warm-up, by init_process_group(timeout=timedelta(...)), and "
    "lower it once all ranks are warm, if at all; a collective that waits keeps the one it has."
)
_NAMES = {
    "nccl": "NCCL",
    "gloo": "gloo",
    "mpi": "MPI",
    "ucc": "UCC",
    "xccl": "XCCL",
    "hccl": "HCCL",
}
_NEAR = 0.5  # of the timeout: with more left, nobody has to know
_LITTLE = 0.3  # of the timeout: then the details say what raises it
_IN_SECONDS = 1000.0
_AT_ONCE = 1.0  # second: less is none that anybody can use


class Deadline(Struct, frozen=True, kw_only=True):
    """What is left of the timeout of the rank that has the least."""

    backend: str | None
    timeout_seconds: float
    left_seconds: float


def deadline(run: RunView, speaker: RankView) -> Deadline | None:
    """Of those that wait for ``speaker``; ``None`` where nobody does, or no timeout is known."""
    activity, progress = speaker.figures.compile.open, speaker.figures.progress
    if activity is None or not speaker.judgement.compiling:
        return None
    longest = max(activity.seconds, progress.open_seconds or 0.0)
    found = []
    for view in run.living:
        timeout = view.figures.who.collective_timeout_seconds
        if timeout is not None and not view.judgement.compiling:
            waited = min(longest, view.figures.progress.quiet_seconds)
            backend = view.figures.who.collective_backend
            found.append((timeout - waited, timeout, backend))
    if not found:
        return None
    left, timeout, backend = min(found, key=lambda one: one[0])
    return Deadline(backend=backend, timeout_seconds=timeout, left_seconds=max(0.0, left))


def is_near(known: Deadline) -> bool:
    """Whether less than half of the timeout is left."""
    return known.left_seconds < _NEAR * known.timeout_seconds


def words(known: Deadline) -> Clause:
    """``NCCL gives up in 505 s``; where little is left, with what raises it as a detail."""
    name = _NAMES.get(known.backend or "", "their collective")
    left = known.left_seconds
    if not left:
        over = f"its {duration(known.timeout_seconds)} are over"
        return Clause(f"{name} has given up by now, or will: {over}", Importance.LOSS)
    if left < _AT_ONCE:
        return Clause(f"{name} gives up any moment now", Importance.LOSS)
    shown = f"{left:.0f} s" if left < _IN_SECONDS else duration(left)
    raises = left < _LITTLE * known.timeout_seconds
    how = " (init_process_group(timeout=) sets that, before it begins)" if raises else ""
    said = f"{name} gives up in {shown}"
    return Clause(f"{said}{how}", Importance.LOSS, said)
