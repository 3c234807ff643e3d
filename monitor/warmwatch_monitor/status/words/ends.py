"""How a rank ended, and when a collective gives up."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from warmwatch.shared.phrases import counted, duration
from warmwatch.shared.verdict import State
from warmwatch_monitor.model import RankView, RunView
from warmwatch_monitor.output.summary import Clause, Importance

# steps of an optimizer of torch.optim are seen without it
MARK_STEPS = "call warmwatch.step() once an iteration if no torch.optim optimizer is used"


def how(view: RankView) -> str | None:
    """``finished``, ``failed``, ``interrupted``, ``detached`` or ``lost``; ``None``: it lives."""
    if view.living:
        return None
    if view.judgement.state is State.FINISHED:
        return view.figures.life.end or State.FINISHED.value
    return str(view.judgement.state.value)


def finished(view: RankView) -> str:
    steps = counted(view.figures.steps.count, "step")
    ended = how(view)
    if ended == "detached":
        return f"detached after {steps}"
    interrupted = " (interrupted)" if ended == "interrupted" else ""
    return f"finished after {steps}{interrupted}"


def remedies(view: RankView) -> tuple[Clause, ...]:
    """The advice to mark steps, if it compiled and no step was recorded."""
    steps, compile = view.figures.steps, view.figures.compile
    # the first optimizer step may not have come, especially if the run ended while compiling
    early = steps.optimizer or compile.open is not None
    needless = steps.count or not compile.begun or early
    return () if needless else (Clause(MARK_STEPS, Importance.REMEDY),)


def failed(view: RankView) -> str:
    """What failed, and how: ``failed after 12 steps: RuntimeError``."""
    steps, life = counted(view.figures.steps.count, "step"), view.figures.life
    if life.exception:
        return f"failed after {steps}: {life.exception}"
    if life.exit_code is not None:
        return f"failed after {steps} with exit code {life.exit_code}"
    if life.signal:
        return f"failed after {steps}: killed by {life.signal}{_memory(view)}"
    return f"failed after {steps} with an uncaught exception"


def lost(view: RankView) -> str:
    steps = counted(view.figures.steps.count, "step")
    return f"lost after {steps}{': out of memory' if view.oom_killed else ''}"


def _memory(view: RankView) -> str:
    return " (out of memory)" if view.oom_killed else ""


def of_the_whole(run: RunView) -> Iterator[Clause]:
    """Whether all of a lost run ended together, perhaps from outside."""
    if words := _of_the_whole(run):
        yield Clause(words, Importance.REASON)


def _of_the_whole(run: RunView) -> str:
    if run.state is not State.LOST or any(view.oom_killed for view in run.ranks):
        return ""
    if all(view.figures.life.killed_at_end for view in run.ranks):
        return "its program was done, and it was killed at its end"
    signals = {view.figures.life.signal for view in run.ranks}
    ends = [view.figures.progress.state_since for view in run.ranks]
    known = [end for end in ends if end is not None]
    unseen = "" if known else " (no daemon saw it)"
    if len(run.ranks) == 1 and None not in signals:
        return f"ended by {signals.pop()}"
    if len(run.ranks) == 1:
        return f"no exit record: killed by a signal, or ended by os._exit{unseen}"
    if run.ended_together is False:
        return ""
    within = f" within {duration(max(1.0, max(known) - min(known)))}" if known else ""
    if None not in signals:
        return f"all ranks ended{within} by {' and '.join(sorted(map(str, signals)))}"
    return f"all ranks ended{within}: cancelled, or one was killed and then the others{unseen}"


def short(view: RankView) -> str:
    """How one rank among others ended: ``failed: RuntimeError``, ``is lost (out of memory)``."""
    if view.judgement.state is State.LOST:
        return f"is lost{_memory(view)}"
    life = view.figures.life
    if life.exception:
        return f"failed: {life.exception}"
    if life.signal:
        return f"failed: killed by {life.signal}{_memory(view)}"
    return "failed" if life.exit_code is None else f"failed with exit code {life.exit_code}"


def of_several(words: str) -> str:
    """The words of :func:`short` for several ranks."""
    return f"are{words.removeprefix('is')}" if words.startswith("is ") else words


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
_NEAR = 0.5  # of the timeout: with more left, it is not shown
_LITTLE = 0.3  # of the timeout: with less left, the clause names the setting
_IN_SECONDS = 1000.0
_LEAST_USABLE = 1.0  # seconds: less is too short to act in


class Deadline(Struct, frozen=True, kw_only=True):
    """The rest of the collective timeout, of the rank with the least left."""

    backend: str | None
    timeout_seconds: float
    left_seconds: float


def deadline(run: RunView, speaker: RankView) -> Deadline | None:
    """The nearest deadline of the ranks that wait for ``speaker``; ``None`` if there is none."""
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
    """``NCCL gives up in 505 s``; with the setting that raises it if little is left."""
    name = _NAMES.get(known.backend or "", "their collective")
    left = known.left_seconds
    if not left:
        over = f"its {duration(known.timeout_seconds)} are over"
        return Clause(f"{name} has given up by now, or will: {over}", Importance.LOSS)
    if left < _LEAST_USABLE:
        return Clause(f"{name} gives up any moment now", Importance.LOSS)
    shown = f"{left:.0f} s" if left < _IN_SECONDS else duration(left)
    raises = left < _LITTLE * known.timeout_seconds
    how = " (init_process_group(timeout=) sets that, before it begins)" if raises else ""
    text = f"{name} gives up in {shown}"
    return Clause(f"{text}{how}", Importance.LOSS, text)
