"""The headline of each state, and the clauses that belong to that state alone; how a rank ended.

Pure. Other views do not parse a headline: ``/status`` has its state as ``state_words``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warmwatch.shared.phrases import called_from, counted, duration, place, step_length
from warmwatch.shared.reasons import plain
from warmwatch.shared.states import WARM, State
from warmwatch_monitor.model import (
    FEWEST_STEPS,
    Compilation,
    Figures,
    RankView,
    RunView,
    Steps,
    Underway,
)
from warmwatch_monitor.model.machine import WORKER
from warmwatch_monitor.output.amounts import own_words
from warmwatch_monitor.output.summary import Clause, Importance
from warmwatch_monitor.status.words.conditions import (
    nothing_captured,
    silent,
    slower_causes,
    slower_speed,
)
from warmwatch_monitor.status.words.nothing import (
    nothing_compiles,
    nothing_has_compiled,
    workers_at_work,
)
from warmwatch_monitor.status.words.progress import baseline_progress, brought, seconds_left, so_far
from warmwatch_monitor.status.words.repeating import repeating_head, why_repeating
from warmwatch_monitor.status.words.requested import (
    never_compiled,
    not_called,
    of_recompile,
    turned_off,
)

# the head of the sentence, and the clauses that explain it
StateText = tuple[str, tuple[Clause, ...]]

# A first step has pauses without compilation, for example between a forward and its backward.
# After a longer pause, the steps may be invisible.
_PAUSE_SECONDS = 10.0
_NOW = " at this moment"
# Start times this close count as the same: half of the last digit shown.
_SAME_SECONDS = 0.05
_OTHER_WORK = 2.0  # seconds without compilation that are not worth a clause


# state -> the condition that qualifies it before any other but ``silent``
_REPEATING = {State.COMPILING, State.WARMING, State.RECOMPILING}
LEADS = {State.WARM: "nothing_captured", State.EAGER: "never_compiled"}


def describe_state(view: RankView) -> StateText:
    """The head and the clauses for the state of ``view``."""
    lead = leads_with(view)
    if lead == "slower":
        return _slower(view)
    if lead == "thrashing":
        return repeating_head(view.figures), (_reason(why_repeating(view.figures)),)
    head, clauses = _BY_STATE[view.judgement.state](view)
    if lead == "silent" and view.judgement.state in WARM:
        head = f"{silent(view.figures)} and {nothing_compiles(view)}; {head}"
    return head, clauses


def leads_with(view: RankView) -> str:
    """The condition with which the sentence begins, or ``""``."""
    state, holds = view.judgement.state, view.judgement.conditions
    if "silent" in holds and state in {*WARM, State.STALLED}:
        return "silent"
    if (lead := LEADS.get(state, "")) in holds:
        return lead
    if "thrashing" in holds and state in _REPEATING and repeating_head(view.figures):
        return "thrashing"
    return "slower" if "slower" in holds and state in WARM else ""


def state_words(view: RankView) -> str:
    """Its state, and the condition that qualifies it: ``warm but slower``; or ``detached``."""
    state, lead = view.judgement.state, leads_with(view)
    if state in WARM and lead in _QUALIFIED:
        return f"{state.value}{_QUALIFIED[lead](view.figures)}"
    return "detached" if end_of(view) == "detached" else state.value


_QUALIFIED: dict[str, Callable[[Figures], str]] = {
    "silent": lambda _figures: " but silent",
    "slower": lambda _figures: " but slower",
    "nothing_captured": lambda figures: f", but {nothing_captured(figures)[0]}",
    "never_compiled": lambda figures: f", but {never_compiled(figures)[0]}",
}


def _slower(view: RankView) -> StateText:
    head, nothing = state_words(view), Clause(nothing_compiles(view), Importance.REASON)
    if view.slower is None:  # a Prometheus server has the condition but not the numbers
        step = view.figures.steps.length
        speed = f": {step_length(step)} a step" if step else ""
        return f"{head}{speed}", (nothing,)
    causes = slower_causes(view.slower)
    why = (Clause(causes, Importance.REASON),) if causes else ()
    return f"{head}: {slower_speed(view.slower)}", (nothing, *why)


def elapsed(view: RankView) -> str:
    """How long it has been compiling, and in which phase: ``43 s (inductor)``.

    It includes pauses, in which another rank may compile, and no step.
    """
    phase = f" ({view.judgement.phase})" if view.judgement.phase else ""
    stretch, activity = view.figures.progress.stretch, view.figures.compile.open
    known = stretch or activity
    return duration(known.seconds if known else 0.0) + phase


def _starting(view: RankView) -> StateText:
    attached = duration(view.figures.progress.quiet_seconds)
    eager = baseline_progress(view.figures)
    seen = f"starting; no step and no compile activity in the {attached} since it attached"
    return seen, (Clause(eager, Importance.NOTE),)


def _compiling(view: RankView) -> StateText:
    return _at_work("compiling", view)


def _at_work(verb: str, view: RankView) -> StateText:
    """The time may be of several compilations; a later one of them is introduced by ``now``."""
    if view.judgement.phase == "outside":
        return f"{verb} for {_outside(view)}", ()
    now, far = view.figures.log.underway, _how_far(view)
    clauses = (*_why(now), *_compiler_share(view))
    if now is not None and now.backward:
        return f"{verb} for {elapsed(view)}, now {_backward_of(now)}{far}", clauses
    if (verb == "compiling" or _is_later(view)) and _target(now):
        return f"{verb} for {elapsed(view)}, now{_target(now)}{far}", clauses
    return f"{verb}{_target(now)} for {elapsed(view)}{far}", clauses


def _compiler_share(view: RankView) -> Iterator[Clause]:
    """``compiled 3.0 s of that``, if other work took more than half of the time."""
    stretch = view.figures.progress.stretch
    if stretch is None or stretch.compiler_seconds is None:
        return
    if stretch.seconds > _OTHER_WORK + 2 * stretch.compiler_seconds:
        yield Clause(f"compiled {duration(stretch.compiler_seconds)} of that", Importance.WAIT)


def _outside(view: RankView) -> str:
    """``12 s: `cc1plus` runs below the training``: the busiest compiler, if the tree shows one."""
    took, underway = elapsed(view).removesuffix(" (outside)"), view.figures.log.underway
    if words := workers_at_work(view.figures):
        return f"{took}: {words}"
    known = view.process.compilers if view.process else ()
    busy = next((one.name for one in known if one.busy and one.name != WORKER), None)
    program = busy or (underway.name if underway else None)
    shown = f"`{program}` runs" if program else "a compiler runs"
    return f"{took}: {shown} below the training"


def _target(of: Underway | Compilation | None) -> str:
    """What is compiled, with a leading space; empty if not known."""
    named = "" if of is None else place(of.name, of.file, of.line)
    return f" {named}" if named else ""


def _backward_of(of: Underway) -> str:
    """``the backward of `forward` (model.py:31)``."""
    named = place(of.name, of.file, of.line)
    return f"the backward of {named}" if named else "a backward"


def _is_later(view: RankView) -> bool:
    """Whether the time in the sentence began before the activity in progress."""
    activity, whole = view.figures.compile.open, view.figures.progress.stretch
    return bool(activity and whole and whole.seconds - activity.seconds > _SAME_SECONDS)


def _how_far(view: RankView) -> str:
    """``: kernels 31 of 86``, of a warm-up of several graphs ``, graph 3: kernels 31 of 86``."""
    activity = view.figures.compile.open
    if activity is None or activity.counted is None:
        return ""
    far, before = activity.counted, view.figures.compile.graphs_compiled
    graph = f", graph {before + 1}" if before else ""
    return f"{graph}: {far.of} {far.done} of {far.total}"


def _why(of: Underway | Compilation | None) -> tuple[Clause, ...]:
    """The reason in plain words, else in PyTorch's own; nothing without a reason."""
    if of is None or not of.reason:
        return ()
    why = plain(of.reason, of.category, of.of_class) or own_words(of.reason)
    return (_reason(f"{why}{called_from(of.caller)}"),)


def _reason(words: str) -> Clause:
    """The reason for the compilation, joined to the head by a colon."""
    short = words.partition("; ")[0]
    return Clause(words, Importance.REASON, short, joint=": ", alone=f"reason: {words}")


def _warming(view: RankView) -> StateText:
    figures = view.figures
    if not figures.steps.count:
        return _no_step_yet(view)
    known = so_far(view)
    if eager := baseline_progress(figures):
        return eager, ()
    if not figures.compile.begun:
        head = f"warming, {_clean_so_far(view)} and no compile activity"
    elif view.judgement.clean_steps and known:
        head = f"warming, {_clean_so_far(view)}"
    else:
        head = f"warming, {_clean_so_far(view)} since the last compile activity"
    return head, (Clause(known, Importance.WAIT, joint=": "), *_off(view))


def _off(view: RankView) -> tuple[Clause, ...]:
    """Why steps are clean if compilation is turned off."""
    off = turned_off(view.figures)
    return (Clause(off, Importance.REASON),) if off else ()


def _no_step_yet(view: RankView) -> StateText:
    quiet = view.figures.progress.quiet_seconds
    if quiet < _PAUSE_SECONDS and view.figures.steps.optimizer is not False:
        if view.figures.pauses.evaluating_since is not None:
            so_far = f", {duration(view.figures.compile.seconds)} of compiling so far"
            return f"no step yet{so_far}; {nothing_compiles(view, _NOW)}", ()
        before = view.figures.steps.before_first_compile_seconds or 0.0
        spent = view.figures.compile.seconds - before
        held = f", {duration(spent)} of it compiling" if spent > 0 else ""
        return f"first step under way{held}; {nothing_compiles(view, _NOW)}", ()
    if view.figures.steps.optimizer:
        return f"no step yet; {nothing_has_compiled(view, quiet)}", ()
    if view.figures.warmups.quiet_limit_seconds is not None:
        return f"warming; no steps are marked; {_quiet_so_far(view)}", ()
    text = f"no steps seen; {nothing_has_compiled(view, quiet)}"
    return text, (Clause(_MARK_STEPS, Importance.REMEDY),)


def _quiet_so_far(view: RankView) -> str:
    """``nothing has compiled for 12 s, warm after 30 s``, of a process without steps."""
    quiet, limit = view.figures.progress.quiet_seconds, view.figures.warmups.quiet_limit_seconds
    after = "" if limit is None else f", warm after {duration(limit)}"
    return f"{nothing_has_compiled(view, quiet)}{after}"


def _clean_so_far(view: RankView) -> str:
    return f"{view.judgement.clean_steps} of {view.figures.warmups.clean_steps_needed} clean steps"


def _recompiling(view: RankView) -> StateText:
    log = view.figures.log
    if view.judgement.compiling:
        return _at_work("recompiling", view)
    what, often = _target(log.reopened_by), of_recompile(view.figures)
    why = (_reason(often),) if often else _why(log.reopened_by)
    if view.figures.warmups.quiet_limit_seconds is not None:
        return f"recompiled{what}; {_quiet_so_far(view)}", why
    known = so_far(view)
    text = f"recompiled{what}, {_clean_so_far(view)} since"
    if not why or seconds_left(view) is None:  # then nothing is left to wait for
        return text, (*why, Clause(known, Importance.REASON, joint="; " if why else ": "))
    return text, (Clause(known, Importance.WAIT), *why)


def _warm(view: RankView) -> StateText:
    figures = view.figures
    step = figures.steps.length
    speed = "" if step is None else f"{step_length(step)} a step"
    if "nothing_captured" in view.judgement.conditions:
        nothing, why = nothing_captured(figures)
        clauses = (Clause(speed, Importance.WAIT), Clause(why, Importance.REASON))
        return f"warm, but {nothing}: this is eager speed", clauses
    if view.judgement.warm_by in _WITHOUT_STEPS:
        return _warm_without_steps(view), ()
    if not figures.compile.begun and figures.compile.precompiled:
        return f"warm, {runs_ahead(figures)}", (Clause(_real_speed(view), Importance.WAIT),)
    if not figures.compile.begun:
        graphs = counted(figures.compile.graphs_before or 0, "graph")
        return f"no compile event since it was attached; {graphs} before that", ()
    text = f"warm since step {figures.warmups.warm_at_step}"
    if "silent" in view.judgement.conditions:
        return text, _off(view)  # it has no speed now
    if speed:
        gained = Clause(brought(figures), Importance.NOTE, joint=", ")
        return f"{text}: {_real_speed(view)}", (gained, *_off(view))
    quiet = figures.progress.compiler_quiet_seconds or 0.0
    return f"{text}; {nothing_has_compiled(view, quiet)}", ()


def _warm_without_steps(view: RankView) -> str:
    """``warm; nothing has compiled for 42 s; no steps are marked``: with the basis of that."""
    figures = view.figures
    head = _WITHOUT_STEPS[view.judgement.warm_by or ""]
    if not figures.compile.begun and figures.compile.precompiled:
        head = f"{head}, {runs_ahead(figures)}"
    quiet, tail = figures.progress.compiler_quiet_seconds, ""
    if quiet is None:
        quiet = figures.progress.quiet_seconds
        tail = " since it was attached"
    steps = "" if figures.steps.count else "; no steps are marked"
    return f"{head}; {nothing_has_compiled(view, quiet)}{tail}{steps}"


def runs_ahead(figures: Figures) -> str:
    """``runs ahead-of-time compiled code (aoti)``."""
    return f"runs ahead-of-time compiled code ({', '.join(figures.compile.precompiled or ())})"


def _so_far(view: RankView) -> str:
    """Why the speed may not be the real one yet: too few clean steps since the last compile
    activity, or a trend in them. Empty if it is.
    """
    steps = view.figures.steps
    if steps.trend is not None:
        return f"so far, getting {steps.trend}{_newest(steps)}"
    known = (steps.clean.count, view.judgement.clean_steps or None)
    count = min((one for one in known if one is not None), default=FEWEST_STEPS)
    early = count < FEWEST_STEPS if steps.settled is None else not steps.settled
    return f"so far, of {counted(count, 'step')}" if early else ""


def _newest(steps: Steps) -> str:
    """``: 30 ms in the last 32 steps``, if that shows it: the speed may be of fewer."""
    newest, known = steps.newest_seconds or 0.0, steps.length or 0.0
    beyond = newest < known if steps.trend == "faster" else newest > known
    shown = step_length(newest)
    if not beyond or shown == step_length(known):
        return ""
    return f": {shown} in the last {steps.newest_count} steps"


def _eager(view: RankView) -> StateText:
    if "never_compiled" in view.judgement.conditions:
        text, why = never_compiled(view.figures)
        return f"eager, but {text}", (Clause(why, Importance.REASON),)
    if off := turned_off(view.figures):
        return f"runs eagerly: {off}", _speed(view)
    steps = counted(view.figures.steps.count, "step")
    if view.judgement.warm_by == "ready":
        return f"ready() was called, and no compile event in {steps}: it runs eagerly", ()
    unused = not_called(view.figures)
    clauses = (*_speed(view), *((Clause(unused, Importance.REASON),) if unused else ()))
    return f"no compile activity in {steps}: the model runs eagerly", clauses


def _speed(view: RankView) -> tuple[Clause, ...]:
    """The real speed as a clause, unless no step comes at the moment."""
    if "silent" in view.judgement.conditions:
        return ()
    return (Clause(_real_speed(view), Importance.WAIT),)


def _real_speed(view: RankView) -> str:
    """``35 ms a step is the real speed``; empty if no length is known."""
    steps = view.figures.steps
    average = " on average" if steps.averaged else ""
    claim = _so_far(view) or f"is the real speed{average}"
    return "" if steps.length is None else f"{step_length(steps.length)} a step {claim}"


def _stalled(view: RankView) -> StateText:
    progress = view.figures.progress
    limit = progress.stall_limit_seconds
    known = f" (limit {duration(limit)})" if limit is not None else ""
    no_step = f"no step for {duration(progress.quiet_seconds)}{known}"
    return f"stalled; {no_step} and {nothing_compiles(view)}", ()


# steps of an optimizer of torch.optim are seen without it
_MARK_STEPS = "call warmwatch.step() once an iteration if no torch.optim optimizer is used"


def end_of(view: RankView) -> str | None:
    """``finished``, ``failed``, ``interrupted``, ``detached`` or ``lost``; ``None``: it lives."""
    return None if view.living else view.end or State.FINISHED.value


def _finished(view: RankView) -> str:
    steps = counted(view.figures.steps.count, "step")
    ended = end_of(view)
    if ended == "detached":
        return f"detached after {steps}"
    interrupted = " (interrupted)" if ended == "interrupted" else ""
    return f"finished after {steps}{interrupted}"


def _remedies(view: RankView) -> tuple[Clause, ...]:
    """The advice to mark steps, if it compiled and no step was recorded."""
    steps, compile = view.figures.steps, view.figures.compile
    # the first optimizer step may not have come, especially if the run ended while compiling
    early = steps.optimizer or compile.open is not None
    needless = steps.count or not compile.begun or early
    return () if needless else (Clause(_MARK_STEPS, Importance.REMEDY),)


def _failed(view: RankView) -> str:
    """What failed, and how: ``failed after 12 steps: RuntimeError``."""
    steps, life = counted(view.figures.steps.count, "step"), view.figures.life
    if life.exception:
        return f"failed after {steps}: {life.exception}"
    if life.exit_code is not None:
        return f"failed after {steps} with exit code {life.exit_code}"
    if life.signal:
        return f"failed after {steps}: killed by {life.signal}{_memory(view)}"
    return f"failed after {steps} with an uncaught exception"


def _lost(view: RankView) -> str:
    steps = counted(view.figures.steps.count, "step")
    return f"lost after {steps}{': out of memory' if view.oom_killed else ''}"


def _memory(view: RankView) -> str:
    return " (out of memory)" if view.oom_killed else ""


def end_of_run(run: RunView) -> Iterator[Clause]:
    """How all of a lost run ended, as far as that is known here."""
    if words := _end_of_run(run):
        yield Clause(words, Importance.REASON)
        if all(view.figures.progress.state_since is None for view in run.ranks):
            yield Clause(_WATCH, Importance.REMEDY)


def _end_of_run(run: RunView) -> str:
    if run.state is not State.LOST or any(view.oom_killed for view in run.ranks):
        return ""
    if all(view.figures.life.killed_at_end for view in run.ranks):
        return "its program was done, and it was killed at its end"
    signals = {view.figures.life.signal for view in run.ranks}
    ends = [view.figures.progress.state_since for view in run.ranks]
    known = [end for end in ends if end is not None]
    if len(run.ranks) == 1 and None not in signals:
        return f"killed by {signals.pop()}"
    if len(run.ranks) == 1:
        return "no exit record: killed by a signal, or ended by os._exit or os.exec"
    all_lost = all(view.judgement.state is State.LOST for view in run.ranks)
    if run.ended_together is False or not all_lost:
        return ""
    together = run.ended_together and known
    within = f" within {duration(max(1.0, max(known) - min(known)))}" if together else ""
    if None not in signals:
        return f"all ranks were killed{within} by {' and '.join(sorted(map(str, signals)))}"
    return f"all ranks ended{within}: cancelled, or one was killed and then the others"


def short_end(view: RankView) -> str:
    """How one rank among others ended: ``failed: RuntimeError``, ``is lost (out of memory)``."""
    if view.judgement.state is State.LOST:
        return f"is lost{_memory(view)}"
    life = view.figures.life
    if life.exception:
        return f"failed: {life.exception}"
    if life.signal:
        return f"failed: killed by {life.signal}{_memory(view)}"
    return "failed" if life.exit_code is None else f"failed with exit code {life.exit_code}"


def of_several_ends(words: str) -> str:
    """The words of :func:`short_end` for several ranks."""
    return f"are{words.removeprefix('is')}" if words.startswith("is ") else words


_WATCH = "a daemon or `warmwatch wait` that runs at the end sees which signal it was"
# heads of a warm rank whose warm-up did not end by clean steps
_WITHOUT_STEPS = {"quiet": "warm", "ready": "warm since ready() was called"}

_BY_STATE: dict[State, Callable[[RankView], StateText]] = {
    State.STARTING: _starting,
    State.COMPILING: _compiling,
    State.WARMING: _warming,
    State.WARM: _warm,
    State.EAGER: _eager,
    State.RECOMPILING: _recompiling,
    State.STALLED: _stalled,
    State.FINISHED: lambda view: (_finished(view), _remedies(view)),
    State.FAILED: lambda view: (_failed(view), ()),
    State.LOST: lambda view: (_lost(view), ()),
}
