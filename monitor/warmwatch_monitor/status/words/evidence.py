"""Evidence for a rank's state: short sentences, one recorded fact each; long steps."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch.shared.phrases import counted, duration, exact_length, place, step_length
from warmwatch.shared.states import State
from warmwatch_monitor.model import Figures, LongStep, Place, RankView
from warmwatch_monitor.output.amounts import IN_PROGRESS, limited, size
from warmwatch_monitor.status.words import gpus, requested
from warmwatch_monitor.status.words.conditions import conditions, failed, inefficiencies
from warmwatch_monitor.status.words.progress import baseline_measured, pause_evidence, throughput
from warmwatch_monitor.status.words.requested import turned_off

_SHARE = 0.1  # of the step: a smaller part does not explain its length
_MOSTLY = 0.5
_MORE_BATCHES = 3

_RECORDS_SETTING = "log_compilation_metrics"


def words(one: LongStep) -> str:
    """``step 400 came after 41.0 s, 36 ms are usual: 38.0 s of it saving a checkpoint``."""
    head = f"step {one.step} came after {exact_length(one.seconds)}"
    usual = f", {step_length(one.usual_seconds)} are usual"
    return f"{head}{usual}: {', '.join(_causes(one))}"


def is_evaluation(one: LongStep) -> bool:
    """Whether an evaluation was reported, or far more batches were delivered than usual."""
    if one.evaluating_seconds:
        return True
    if one.batches is None or one.batches_usual is None:
        return False
    return one.batches >= _MORE_BATCHES * max(1.0, one.batches_usual)


def _causes(one: LongStep) -> Iterator[str]:
    explained = one.usual_seconds
    for seconds, what in (
        (one.saving_seconds, "saving a checkpoint"),
        (one.evaluating_seconds, "evaluating"),
        (one.between_cells_seconds, "between the cells of a notebook"),
        (one.data_seconds or 0.0, "waiting for data"),
    ):
        if seconds >= _SHARE * one.seconds:
            explained += seconds
            yield f"{exact_length(seconds)} of it {what}"
    if is_evaluation(one) and not one.evaluating_seconds:
        yield f"{counted(one.batches or 0, 'batch', 'batches')} in it: an evaluation?"
    elif explained <= _MOSTLY * one.seconds:
        rest = "the rest" if explained > one.usual_seconds else "it"
        yield f"no compile event in it, and what {rest} went to is not known"


def long_step_evidence(figures: Figures) -> Iterator[str]:
    """The last long step, and the longest one if it is a different step."""
    long_steps = figures.log.long_steps
    if not long_steps:
        return
    yield words(long_steps[-1])
    longest = max(long_steps, key=lambda one: one.seconds)
    if longest.step != long_steps[-1].step:
        yield f"the longest of them: {words(longest)}"


def evidence(view: RankView) -> list[str]:
    """The facts behind the judgement of ``view``, the most important first."""
    return [
        *_end(view),
        *_stopped(view),
        *_activity(view),
        *_steps(view),
        *_gpus(view),
        *_first_step(view),
        *filter(None, [baseline_measured(view.figures)]),
        *_throughput(view),
        *_limit(view),
        *pause_evidence(view),
        *long_step_evidence(view.figures),
        *requested.evidence(view.figures),
        *_inefficiencies(view.figures),
        *_doubts(view),
    ]


def _limit(view: RankView) -> Iterator[str]:
    if view.limited_by is not None and view.living:
        yield limited(view.limited_by)


def _inefficiencies(figures: Figures) -> Iterator[str]:
    """Uncompiled ``flex_attention`` is a condition already."""
    found, more = inefficiencies(figures)
    for one in found:
        if one.kind != "flex_attention":
            yield one.words
    if more:
        yield f"{more} more of these that make code slower than it could be"


def _stopped(view: RankView) -> Iterator[str]:
    if view.living and view.process is not None and view.process.stopped:
        yield "its process is stopped (SIGSTOP, Ctrl-Z, a debugger): kill -CONT continues it"


def _activity(view: RankView) -> Iterator[str]:
    activity = view.figures.compile.open
    if activity is not None and view.judgement.compiling:
        phase = f", phase {activity.phase}" if activity.phase else ""
        yield f"{IN_PROGRESS}{duration(activity.seconds)}{phase}"
    yield from _workers(view)
    yield from _compilers(view)


def _compilers(view: RankView) -> Iterator[str]:
    if view.process is None or not view.judgement.compiling:
        return
    for one in view.process.compilers:
        doing = "stopped" if one.stopped else "busy" if one.busy else None
        if doing:
            spent = duration(one.cpu_seconds)
            yield f"{one.name} (pid {one.pid}) is {doing}, {spent} of CPU so far"


def _workers(view: RankView) -> Iterator[str]:
    workers = view.figures.workers
    if workers is None:
        return
    if workers.busy:
        yield f"{workers.busy} of {counted(workers.count, 'compile worker')} busy"
    elif workers.count and view.judgement.compiling:
        alive = counted(workers.count, "compile worker")
        yield f"{alive} alive, none busy: the work is in the main process"


def _gpus(view: RankView) -> Iterator[str]:
    """What the GPUs do now; for a stalled rank also the possible cause."""
    if not view.living or not view.gpus:
        return
    if view.judgement.state is State.STALLED and (words := gpus.meanwhile(view.gpus)):
        yield words
    yield from gpus.evidence(view.gpus)


def _first_step(view: RankView) -> Iterator[str]:
    """The compiler's share is known only if all its activity ended before the first mark."""
    compile, steps = view.figures.compile, view.figures.steps
    if compile.open is not None or compile.last_end_at is None or steps.first_at is None:
        return
    if compile.last_end_at > steps.first_at:
        return
    before = steps.before_first_compile_seconds or 0.0
    held = compile.seconds - before
    if steps.first_seconds is None or held > steps.first_seconds:
        whole = f"{compile.seconds:.1f} s of compile activity"
        yield f"{whole} before the end of step 1, none after it"
        return
    earlier = f", {before:.1f} s came before it" if before else ""
    yield f"step 1 held {held:.1f} s of compile activity{earlier}"


def _throughput(view: RankView) -> Iterator[str]:
    if words := throughput(view):
        yield f"at the recent speed: {words}"


def _steps(view: RankView) -> Iterator[str]:
    figures, judgement = view.figures, view.judgement
    steps, begun = figures.steps.count, figures.compile.begun
    if not view.living:
        return
    if judgement.state is State.STARTING:
        yield f"attached {duration(figures.progress.quiet_seconds)} ago"
    if not steps and begun:
        yield "no step was marked yet"
        return
    if judgement.state is State.STALLED:
        yield from _stall(view)
    if judgement.compiling or not steps:
        return
    if not begun:
        yield f"no compile activity in {counted(steps, 'step')}"
        return
    yield f"{counted(judgement.clean_steps, 'clean step')} since the last activity ended"


def _stall(view: RankView) -> Iterator[str]:
    progress = view.figures.progress
    limit = progress.stall_limit_seconds
    known = f" (stall limit {duration(limit)})" if limit is not None else ""
    yield f"no step for {duration(progress.quiet_seconds)}{known}"
    if view.process is not None and view.process.cpu_ratio is not None:
        yield f"the process uses {view.process.cpu_ratio * 100:.0f} % of a core meanwhile"


def _gone(view: RankView) -> str:
    if view.figures.life.killed_at_end:
        return (
            "the program came to its end, and the process died before it had exited: by a crash of "
            "a library at its end, by a signal or by os._exit; see its stderr"
        )
    return "the process disappeared without an exit record"


def _end(view: RankView) -> Iterator[str]:
    if view.judgement.state is State.LOST:
        yield _gone(view)
        yield from _killed(view)
    elif view.judgement.state is State.FAILED:
        yield from _failure(view)
    elif view.figures.life.end == "interrupted" and not view.living:
        yield "it was interrupted (Ctrl-C)"
    cut_off = view.figures.compile.open
    if cut_off is not None and not view.living:
        phase = f", phase {cut_off.phase}" if cut_off.phase else ""
        yield f"it ended in the middle of compile activity{phase}"


def _killed(view: RankView) -> Iterator[str]:
    if view.figures.life.signal:
        yield f"{view.figures.life.signal} killed the process"
    if view.oom_killed:
        yield "the kernel killed it: out of memory"


def _raised(at: Place | None) -> str:
    return "" if at is None else f", from {place(at.name, at.file, at.line)}"


def _failure(view: RankView) -> Iterator[str]:
    life = view.figures.life
    if life.exception:
        yield f"an uncaught {life.exception} ended the process{_raised(life.raised)}"
    elif life.signal:
        yield from _killed(view)
    elif life.exit_code is None:
        yield "an uncaught exception ended the process"
    if life.exit_code is not None:
        yield f"exit code {life.exit_code}"


def _doubts(view: RankView) -> Iterator[str]:
    """Reasons why figures are incomplete, or the speed is below the compiled speed."""
    agent = view.figures.agent
    for _, words in conditions(view):
        yield words
    if off := turned_off(view.figures):
        yield off
    if view.figures.compile.failures:
        yield failed(view.figures)
    if agent.errors:
        errors = counted(agent.errors, "error")
        yield f"the agent caught {errors} of its own: its figures may be low"
    if agent.lines_dropped:
        yield f"{counted(agent.lines_dropped, 'journal line')} could not be written"
    if agent.lines_broken:
        yield f"{counted(agent.lines_broken, 'journal line')} could not be read"
    if agent.unread_bytes:
        yield (
            f"{size(agent.unread_bytes)} of the journal are not read yet: compilations, "
            "recompiles and graph breaks are incomplete"
        )
    if agent.skipped_bytes:
        yield (
            f"{size(agent.skipped_bytes)} of the journal were skipped, for it is too long: "
            "compilations, recompiles and graph breaks are incomplete"
        )
    missing = list(agent.missing)
    if _RECORDS_SETTING in missing:
        yield (
            f"torch._dynamo.config.{_RECORDS_SETTING} is off: compilations, recompiles, graphs and "
            "failures are unknown"
        )
        missing = [name for name in missing if name not in (_RECORDS_SETTING, "compilations")]
    if missing:
        yield f"this torch does not have: {', '.join(missing)}"
