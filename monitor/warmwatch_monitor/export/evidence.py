"""The evidence for a rank's state: short sentences, each of them a recorded fact in words.

Nothing is concluded here that the verdict did not conclude; a fact that is not known is not
mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch.record import PHASES
from warmwatch.verdict import State
from warmwatch_monitor.export import figures, silicon
from warmwatch_monitor.export.conditions import conditions
from warmwatch_monitor.export.wording import counted, duration
from warmwatch_monitor.model import RankView


def evidence(view: RankView, now_ns: int) -> list[str]:
    """The facts that carry the judgement of ``view``, the weightiest first."""
    return [
        *_end(view),
        *_activity(view, now_ns),
        *_steps(view, now_ns),
        *_gpus(view),
        *_first_step(view),
        *_doubts(view),
    ]


def _activity(view: RankView, now_ns: int) -> Iterator[str]:
    open_ns = figures.in_progress_ns(view, now_ns)
    if open_ns is not None:
        phase = f", phase {view.judgement.phase}" if view.judgement.phase else ""
        yield f"compile activity in progress for {duration(open_ns / 1e9)}{phase}"
    yield from _workers(view)


def _workers(view: RankView) -> Iterator[str]:
    process = view.process
    if process is None or process.workers_busy is None or process.workers_idle is None:
        return
    alive = process.workers_busy + process.workers_idle
    if process.workers_busy:
        yield f"{process.workers_busy} of {counted(alive, 'compile worker')} busy"
    elif alive and view.judgement.compiling:
        workers = counted(alive, "compile worker")
        yield f"{workers} alive, none busy: the work is in the main process"


def _gpus(view: RankView) -> Iterator[str]:
    """What the GPUs do now; of a rank that stands still also what that may mean."""
    if not figures.is_living(view):
        return
    if view.judgement.state is State.STALLED and (said := silicon.meanwhile(view.gpus)):
        yield said
    yield from silicon.evidence(view.gpus)


def _first_step(view: RankView) -> Iterator[str]:
    """Only where all activity so far had ended by the first mark is its share known."""
    compile = view.reading.slot.compile
    if not compile.last_end_ns or compile.last_end_ns > compile.first_step_ns:
        return
    if compile.active_since_ns:
        return
    total_ns = sum(compile.phase_ns)
    inside = compile.first_duration_ns and total_ns <= compile.first_duration_ns
    held = f"{total_ns / 1e9:.1f} s of compile activity"
    yield f"step 1 held {held}" if inside else f"{held} before the end of step 1, none after it"


def _steps(view: RankView, now_ns: int) -> Iterator[str]:
    slot, judgement = view.reading.slot, view.judgement
    if not figures.is_living(view):
        return
    if judgement.state is State.STARTING:
        yield f"attached {duration(figures.quiet_ns(view, now_ns) / 1e9)} ago"
    if not slot.steps.steps and slot.compile.begun:
        yield "no step was marked yet"
        return
    if judgement.state is State.STALLED:
        quiet = duration(figures.quiet_ns(view, now_ns) / 1e9)
        limit = duration(figures.stall_limit_ns(view) / 1e9)
        yield f"no step for {quiet} (stall limit {limit})"
        yield from _process_use(view)
    if judgement.compiling or not slot.steps.steps:
        return
    if not slot.compile.begun:
        yield f"no compile activity in {counted(slot.steps.steps, 'step')}"
        return
    yield f"{counted(judgement.clean_steps, 'clean step')} since the last activity ended"


def _process_use(view: RankView) -> Iterator[str]:
    if view.process is not None and view.process.cpu_ratio is not None:
        yield f"the process uses {view.process.cpu_ratio * 100:.0f} % of a core meanwhile"


def _end(view: RankView) -> Iterator[str]:
    if view.judgement.state is State.LOST:
        yield "the process is gone and said nothing"
    elif view.judgement.state is State.FAILED:
        yield "an uncaught exception ended the process"
    compile = view.reading.slot.compile
    if compile.active_since_ns and not figures.is_living(view):
        phase = f", phase {PHASES[compile.active_phase - 1]}" if compile.active_phase else ""
        yield f"it ended in the middle of compile activity{phase}"


def _doubts(view: RankView) -> Iterator[str]:
    """What makes the figures less than the whole truth, or the speed less than compiled."""
    slot, compile = view.reading.slot, view.reading.slot.compile
    for _, words in conditions(view):
        yield words
    if compile.failures:
        yield f"{counted(compile.failures, 'compilation')} failed"
    if compile.agent_errors:
        errors = counted(compile.agent_errors, "error")
        yield f"the agent swallowed {errors} of its own: its figures may be low"
    if compile.journal_dropped:
        yield f"{counted(compile.journal_dropped, 'journal line')} could not be written"
    if view.reading.broken_lines:
        yield f"{counted(view.reading.broken_lines, 'journal line')} could not be read"
    if slot.identity.missing:
        yield f"this torch does not have: {', '.join(slot.identity.missing)}"
