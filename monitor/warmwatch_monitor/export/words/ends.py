"""How a rank ended, in words. Pure.

A whole run that is gone within seconds was probably ended from outside, as a cancelled job is; a
part of a run that dies while the rest lives is another thing, and never softened.
"""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch.verdict import State
from warmwatch_monitor.export.words.clauses import Clause, Importance
from warmwatch_monitor.export.words.wording import counted, duration
from warmwatch_monitor.model import RankView, RunView

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
    """What to do where it compiled and no step was ever seen."""
    steps, compile = view.figures.steps, view.figures.compile
    # an optimizer's first step may not have come, above all where the end cut off a compilation
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
    """What a run that is lost adds: that all of it ended at once, from outside perhaps."""
    if words := _of_the_whole(run):
        yield Clause(words, Importance.REASON)


def _of_the_whole(run: RunView) -> str:
    if run.state is not State.LOST or any(view.oom_killed for view in run.ranks):
        return ""
    if all(view.figures.life.killed_at_end for view in run.ranks):
        return "its program was done, and it was killed at its end"
    signals = {view.figures.life.signal for view in run.ranks}
    if len(run.ranks) == 1 and None not in signals:
        return f"ended by {signals.pop()}"
    if len(run.ranks) == 1:
        return "the process said nothing: ended from outside, or by os._exit?"
    if not run.ended_together:
        return ""
    ends = [view.figures.progress.state_since for view in run.ranks]
    known = [end for end in ends if end is not None]
    within = duration(max(1.0, max(known) - min(known))) if known else "seconds"
    if None not in signals:
        return f"all ranks ended within {within} by {' and '.join(sorted(map(str, signals)))}"
    return f"all ranks ended within {within}: ended from outside?"


def short(view: RankView) -> str:
    """Of one rank beside others: ``failed: RuntimeError``, ``is lost (out of memory)``."""
    if view.judgement.state is State.LOST:
        return f"is lost{_memory(view)}"
    life = view.figures.life
    if life.exception:
        return f"failed: {life.exception}"
    if life.signal:
        return f"failed: killed by {life.signal}{_memory(view)}"
    return "failed" if life.exit_code is None else f"failed with exit code {life.exit_code}"


def of_several(words: str) -> str:
    """What :func:`short` says of one rank, said of several."""
    return f"are{words.removeprefix('is')}" if words.startswith("is ") else words
