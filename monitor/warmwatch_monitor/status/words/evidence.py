"""Evidence for a rank's state: short sentences, one recorded fact each; long steps."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch.shared.fallbacks import REFUSALS
from warmwatch.shared.phrases import continued, counted, duration, place, took
from warmwatch.shared.states import State
from warmwatch_monitor.model.figures import Figures
from warmwatch_monitor.model.journal import LongStep
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.output.amounts import limited, size
from warmwatch_monitor.status.words import gpus, requested
from warmwatch_monitor.status.words.conditions import conditions, failed, inefficiencies
from warmwatch_monitor.status.words.progress import (
    baseline_measured,
    busy_workers,
    continuing,
    halted,
    pause_evidence,
    throughput,
)
from warmwatch_monitor.status.words.requested import turned_off

_SHARE = 0.1  # of the step: a smaller part does not explain its length
_MOSTLY = 0.5
_MORE_BATCHES = 3

_GONE = "the process disappeared without an exit record"
_DIED_AT_END = (
    "the program came to its end, and the process died before it had exited: by a crash of a "
    "library at its end, by a signal or by os._exit; see its stderr"
)
_RECORDS_SETTING = "log_compilation_metrics"


def long_step_words(step: LongStep) -> str:
    """``step 400 came after 41 s, 36 ms are usual: 38 s of it saving a checkpoint``."""
    head = f"step {step.step} came after {took(step.seconds)}"
    usual = f", {took(step.usual_seconds)} are usual"
    return f"{head}{usual}: {', '.join(_causes(step))}"


def is_evaluation(step: LongStep) -> bool:
    """Whether an evaluation was reported, or far more batches were delivered than usual."""
    if step.evaluating_seconds:
        return True
    if step.batches is None or step.batches_usual is None:
        return False
    return step.batches >= _MORE_BATCHES * max(1.0, step.batches_usual)


def _causes(step: LongStep) -> Iterator[str]:
    explained = step.usual_seconds
    for seconds, what in (
        (step.saving_seconds, "saving a checkpoint"),
        (step.evaluating_seconds, "evaluating"),
        (step.between_cells_seconds, "between the cells of a notebook"),
        (step.data_seconds or 0.0, "waiting for data"),
    ):
        if seconds >= _SHARE * step.seconds:
            explained += seconds
            yield f"{took(seconds)} of it {what}"
    if is_evaluation(step) and not step.evaluating_seconds:
        yield f"{counted(step.batches or 0, 'batch', 'batches')} in it: an evaluation?"
    elif explained <= _MOSTLY * step.seconds:
        rest = "the rest" if explained > step.usual_seconds else "it"
        waits = "; Python may have waited at its prompt" if step.prompt else ""
        yield f"no compile event in it, and what {rest} went to is not known{waits}"


def long_step_evidence(figures: Figures) -> Iterator[str]:
    """The last long step, and the longest one if it is a different step."""
    long_steps = figures.log.long_steps
    if not long_steps:
        return
    yield long_step_words(long_steps[-1])
    longest = max(long_steps, key=lambda step: step.seconds)
    if longest.step != long_steps[-1].step:
        yield f"the longest of them: {long_step_words(longest)}"


def evidence(view: RankView) -> list[str]:
    """The facts behind the judgement of ``view``, the most important first."""
    baseline, rates = baseline_measured(view.figures.baseline), throughput(view)
    return [
        *_end(view),
        *([f"{halted(view)}: {continuing(view)} continues it"] if view.stopped else []),
        *_workers(view),
        *_compilers(view),
        *_steps(view),
        *_gpus(view),
        *_first_step(view),
        *([baseline] if baseline else []),
        *([f"at the recent speed: {rates}"] if rates else []),
        *([limited(view.limited_by)] if view.limited_by and view.living else []),
        *pause_evidence(view),
        *long_step_evidence(view.figures),
        *requested.evidence(view.figures),
        *_inefficiencies(view.figures),
        *_doubts(view),
    ]


def _inefficiencies(figures: Figures) -> Iterator[str]:
    """Uncompiled ``flex_attention`` is a condition already."""
    result, more = inefficiencies(figures)
    for inefficiency in result:
        if inefficiency.kind != "flex_attention":
            yield inefficiency.words
    if more:
        yield f"{more} more of these"


def _compilers(view: RankView) -> Iterator[str]:
    if view.process is None or not view.judgement.compiling:
        return
    for compiler in view.process.compilers:
        doing = "stopped" if compiler.stopped else "busy" if compiler.busy else None
        if doing:
            spent = duration(compiler.cpu_seconds)
            yield f"{compiler.name} (pid {compiler.pid}) is {doing}, {spent} of CPU so far"


def _workers(view: RankView) -> Iterator[str]:
    workers = view.figures.workers
    if workers is None:
        return
    if workers.busy:
        yield busy_workers(workers)
    elif workers.count and view.judgement.compiling:
        alive = counted(workers.count, "compile worker")
        yield f"{alive} alive, none busy: the work is in the main process"


def _gpus(view: RankView) -> Iterator[str]:
    """What the GPUs do now; for a stalled rank also the possible cause."""
    if not view.living or not view.gpus:
        return
    if view.judgement.state is State.STALLED and (text := gpus.meanwhile(view.gpus)):
        yield text
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
    if steps.first is None or held > steps.first:
        whole = f"{compile.seconds:.1f} s of compile activity"
        yield f"{whole} before the end of step 1, none after it"
        return
    earlier = f", {before:.1f} s came before it" if before else ""
    yield f"step 1 held {held:.1f} s of compile activity{earlier}"


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
        limit = figures.progress.stall_limit_seconds
        stall_limit = f" (stall limit {duration(limit)})" if limit is not None else ""
        yield f"no step for {duration(figures.progress.quiet_seconds)}{stall_limit}"
        if view.process is not None and view.process.cpu_ratio is not None:
            yield f"the process uses {view.process.cpu_ratio * 100:.0f} % of a core meanwhile"
    if judgement.compiling or not steps:
        return
    if not begun:
        yield f"no compile activity in {counted(steps, 'step')}"
        return
    yield f"{counted(judgement.clean_steps, 'clean step')} since the last activity ended"


def in_the_middle(phase: str | None) -> str:
    name = f", phase {phase}" if phase else ""
    return f"ended in the middle of compile activity{name}"


def _end(view: RankView) -> Iterator[str]:
    if view.judgement.state is State.LOST:
        yield _DIED_AT_END if view.figures.life.killed_at_end else _GONE
        yield from _killed(view)
    elif view.judgement.state is State.FAILED:
        yield from _failure(view)
    elif view.figures.life.end == "interrupted" and not view.living:
        yield "it was interrupted (Ctrl-C)"
    cut_off = view.figures.compile.open
    if cut_off is not None and not view.living:
        yield f"it {in_the_middle(cut_off.phase)}"


def _killed(view: RankView) -> Iterator[str]:
    if view.figures.life.signal:
        yield f"{view.figures.life.signal} killed the process"
    if view.oom_killed:
        yield "the kernel killed it: out of memory"


def _failure(view: RankView) -> Iterator[str]:
    life = view.figures.life
    if life.exception:
        at = life.raised
        place_of = f", from {place(at.name, at.file, at.line)}" if at else ""
        yield f"an uncaught {life.exception} ended the process{place_of}"
        if refusal := REFUSALS.get(life.refusal or ""):
            what, remedy = refusal
            yield f"{what}: {continued(remedy).rstrip('.')}"
    elif life.signal:
        yield from _killed(view)
    elif life.exit_code is None:
        yield "an uncaught exception ended the process"
    if life.exit_code is not None:
        yield f"exit code {life.exit_code}"


def _doubts(view: RankView) -> Iterator[str]:
    """Reasons why figures are incomplete, or the speed is below the compiled speed."""
    agent = view.figures.agent
    yield from (clause.text for clause in conditions(view).values())
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
