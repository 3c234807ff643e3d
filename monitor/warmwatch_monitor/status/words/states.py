"""The headline of each state, and the clauses that belong to that state alone; how a rank ended.

Pure. Other views do not parse a sentence: ``/status`` has its clauses, each with its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from warmwatch.shared.fallbacks import REFUSALS
from warmwatch.shared.phrases import called_from, counted, duration, place, took
from warmwatch.shared.states import ENDED, FINISHED_SO, WARM, State
from warmwatch_monitor.figures.declared import Kind
from warmwatch_monitor.model.figures import Figures, Steps, Underway
from warmwatch_monitor.model.journal import Compilation
from warmwatch_monitor.model.machine import WORKER
from warmwatch_monitor.model.records import FEWEST_STEPS
from warmwatch_monitor.model.snapshot import RankView, RunView
from warmwatch_monitor.output.amounts import failed_at, failure, reason
from warmwatch_monitor.output.summary import Clause, Words, begin
from warmwatch_monitor.status.words.conditions import (
    exiting,
    nothing_captured,
    silent,
    slower_causes,
    slower_since,
)
from warmwatch_monitor.status.words.progress import baseline_progress, brought, seconds_left, so_far
from warmwatch_monitor.status.words.repeating import (
    backward_of,
    dropped,
    is_break,
    remedy_of_failure,
    repeating_head,
    why_repeating,
)
from warmwatch_monitor.status.words.requested import (
    child_at_work,
    never_compiled,
    not_called,
    nothing_compiles,
    nothing_has_compiled,
    of_recompile,
    turned_off,
    workers_at_work,
)

# the head of the sentence, and the clauses that explain it
StateText = tuple[Clause, ...]

# A first step has pauses without compilation, for example between a forward and its backward.
# After a longer pause, the steps may be invisible.
_PAUSE_SECONDS = 10.0
# Start times this close count as the same: half of the last digit shown.
_SAME_SECONDS = 0.05
_OTHER_WORK = 2.0  # seconds without compilation that are not worth a clause


# state -> the condition that qualifies it before any other but ``silent``
_REPEATING = {State.COMPILING, State.WARMING, State.RECOMPILING}
LEADS = {State.WARM: "nothing_captured", State.EAGER: "never_compiled"}


def describe_state(view: RankView) -> StateText:
    """The head and the clauses for the state of ``view``."""
    lead = leads_with(view)
    if lead == "exiting":
        clause = exiting(view)
        return (_head(clause.text, clause.text[len(clause.short) + 2 :]),)
    if lead == "slower":
        return _slower(view)
    if lead == "thrashing":
        return _head(repeating_head(view.figures)), _reason(why_repeating(view.figures))
    head, *clauses = _BY_STATE[view.judgement.state](view)
    if lead == "silent" and view.judgement.state in WARM:
        no_step, rest = silent(view.figures), nothing_compiles(view)
        usually = no_step.text[len(no_step.short) :]
        beyond = f"{usually.lstrip()} and {rest}" if usually else rest
        clauses = [Clause(head.text, Kind.STATE), *clauses]
        head = _head(f"{no_step.text} and {rest}", beyond)
    return head, *clauses


def _head(text: str, beyond: str | None = None) -> Clause:
    """``beyond``: what it adds to the title, if it begins with the words of the title."""
    return Clause(text, Kind.STATE, beyond=beyond)


def _after(title: str, rest: str, joint: str = "; ") -> Clause:
    return _head(begin(title, rest, joint).text, rest)


def state_title(view: RankView) -> str:
    """Its state and its most important figure: ``warm, 36 ms a step``, ``finished after 9 steps``.

    A warming rank has too few clean steps for a speed.
    """
    text, state, figures = state_words(view), view.judgement.state, view.figures
    progress, length = figures.progress, figures.steps.length
    if state in ENDED:
        if not figures.steps.count:  # a server or an actor never marks one
            is_done = state is State.FINISHED or figures.warmups.latest is not None
            return f"{text}; no steps were marked" if is_done else f"{text} before its first step"
        return f"{text} after {counted(figures.steps.count, 'step')}"
    if "exiting" in view.judgement.conditions:
        return exiting(view).short
    if (left := _shown_left(view)) is not None:
        return f"{text}, about {duration(left)} left"
    if view.judgement.compiling:
        return f"{text} for {elapsed(view)}"
    if state is State.STARTING:
        return f"{text} for {duration(progress.quiet_seconds)}"
    if state is State.STALLED:
        since = progress.quiet_seconds - (progress.stall_limit_seconds or 0.0)
        return f"{text} for {duration(since)}"
    if "silent" in view.judgement.conditions:
        return f"{text}, {silent(figures).short}"
    return f"{text}, {took(length)} a step" if state in WARM and length is not None else text


def _shown_left(view: RankView) -> float | None:
    """The time that a compilation still takes, if it is known and not about over."""
    left = view.estimate.left_seconds if view.estimate and view.judgement.compiling else None
    return left if left is not None and left >= 1 else None


def leads_with(view: RankView) -> str:
    """The condition with which the sentence begins, or ``""``."""
    state, holds = view.judgement.state, view.judgement.conditions
    if "exiting" in holds:
        return "exiting"
    if "silent" in holds and state in {*WARM, State.STALLED}:
        return "silent"
    if (lead := LEADS.get(state, "")) in holds:
        return lead
    if "thrashing" in holds and state in _REPEATING and repeating_head(view.figures):
        return "thrashing"
    return "slower" if "slower" in holds and state in WARM else ""


def state_words(view: RankView) -> str:
    """Its state, and the condition that qualifies it: ``warm but slower``; or how it ended."""
    state = view.judgement.state.value
    if lead := qualified_by(view):
        return f"{state}{_QUALIFIED[lead](view.figures)}"
    return ended_in_words(state, end_of(view))


def ended_in_words(state: str, how: str | None) -> str:
    """``state``; ``interrupted`` or ``detached`` of a run that finished so."""
    return how if how in FINISHED_SO and state == State.FINISHED else state


def qualified_by(view: RankView) -> str | None:
    """The condition that qualifies a warm or eager state; ``exiting`` qualifies any."""
    lead = leads_with(view)
    qualifies = lead == "exiting" or (view.judgement.state in WARM and lead in _QUALIFIED)
    return lead if qualifies else None


_QUALIFIED: dict[str, Callable[[Figures], str]] = {
    "exiting": lambda _figures: ", exiting",
    "silent": lambda _figures: " but silent",
    "slower": lambda _figures: " but slower",
    "nothing_captured": lambda figures: f", but {nothing_captured(figures)[0]}",
    "never_compiled": lambda figures: f", but {never_compiled(figures)[0]}",
}


def _slower(view: RankView) -> StateText:
    head, nothing = state_words(view), Clause(nothing_compiles(view), Kind.REASON)
    if view.slower is None:  # a Prometheus server has the condition but not the numbers
        step = view.figures.steps.length
        return _head(f"{head}: {took(step)} a step" if step else head, ""), nothing
    speed, since = f"{took(view.slower.seconds)} a step", slower_since(view.slower).text
    in_title = state_title(view) == f"{head}, {speed}"
    beyond = since if in_title else f"{speed} {since}"
    causes = Clause(slower_causes(view.slower), Kind.REASON)
    return _head(f"{head}: {speed} {since}", beyond), nothing, causes


def elapsed(view: RankView) -> str:
    """How long it has been compiling.

    It includes pauses, in which another rank may compile, and no step.
    """
    value = view.figures.progress.stretch or view.figures.compile.open
    return duration(value.seconds if value else 0.0)


def in_phase(view: RankView) -> str:
    """`` (inductor)``."""
    return f" ({view.judgement.phase})" if view.judgement.phase else ""


def _starting(view: RankView) -> StateText:
    attached = duration(view.figures.progress.quiet_seconds)
    seen = f"no step and no compile activity in the {attached} since it attached"
    return _after("starting", seen), Clause(baseline_progress(view.figures), Kind.NOTE)


def _at_work(verb: str, view: RankView) -> StateText:
    """The time may be of several compilations; a later one of them is introduced by ``now``."""
    phase, now = view.judgement.phase, view.figures.log.underway
    activity, stretch = view.figures.compile.open, view.figures.progress.stretch
    target, later, rest = place(*now.function) if now else "", "", _progress(view)
    # whether the time began before the activity in progress
    is_later = activity and stretch and stretch.seconds - activity.seconds > _SAME_SECONDS
    if phase == "outside":
        phase, now, target, rest = None, None, "", [(": ", _outside(view))]
    elif now is not None and now.backward:
        target, later = "", f"now {backward_of(target)}"
    elif target and (verb == "compiling" or is_later):
        target, later = "", f"now {target}"
    rest = [(", ", later), *rest]
    time = [(" ", f"for {elapsed(view)}"), (" ", f"({phase})" if phase else "")]
    beyond = time if _shown_left(view) is not None else [(", ", phase or "")]
    head = _head(
        _joined([("", verb), (" ", target), *time, *rest]),
        _joined([(" ", target), *beyond, *rest]),
    )
    share = () if view.judgement.phase == "outside" else _compiler_share(view)
    return head, *_why(now), *share


def _joined(parts: Sequence[tuple[str, str]]) -> str:
    """The texts that are not empty, each after its separator but the first."""
    shown = [part for part in parts if part[1]]
    return "".join(chain.from_iterable(shown))[len(shown[0][0]) if shown else 0 :]


def _compiler_share(view: RankView) -> Iterator[Clause]:
    """``compiled 3.0 s of that``, if other work took more than half of the time."""
    stretch = view.figures.progress.stretch
    if stretch is None or stretch.compiler_seconds is None:
        return
    if stretch.seconds > _OTHER_WORK + 2 * stretch.compiler_seconds:
        yield Clause(f"compiled {duration(stretch.compiler_seconds)} of that", Kind.WAIT)


def _outside(view: RankView) -> str:
    """```cc1plus` runs below the training``: the busiest compiler, if the tree shows one."""
    if text := child_at_work(view) or workers_at_work(view.figures):
        return text
    compilers = view.process.compilers if view.process else ()
    busy = (compiler.name for compiler in compilers if compiler.busy and compiler.name != WORKER)
    underway = view.figures.log.underway
    program = next(busy, underway.name if underway else None)
    return f"{f'`{program}`' if program else 'a compiler'} runs below the training"


def _progress(view: RankView) -> list[tuple[str, str]]:
    """``: kernels 31 of 86``, after others ``, compilation 3: kernels 31 of 86``."""
    activity, before = view.figures.compile.open, view.figures.compile.compilations
    if activity is None or activity.counted is None:
        return []
    counts, which = activity.counted, f"compilation {before + 1}" if before else ""
    return [(", ", which), (": ", f"{counts.of} {counts.done} of {counts.total}")]


def _why(compilation: Underway | Compilation | None) -> tuple[Clause, ...]:
    """The reason in plain words, else in PyTorch's own; nothing without a reason."""
    if compilation is None:
        return ()
    why = reason(compilation) if compilation.reason else dropped(compilation)
    return (_reason(begin(f"{why}{called_from(compilation.caller)}")),) if why else ()


def _reason(words: Words) -> Clause:
    """The reason for the compilation, joined to the head by a colon."""
    return Clause(words.text, Kind.REASON, words.short, joint=": ", alone=f"reason: {words.text}")


def _warming(view: RankView) -> StateText:
    figures = view.figures
    if not figures.steps.count:
        return _no_step_yet(view)
    name = so_far(view)
    if eager := baseline_progress(figures):
        return (_head(eager),)
    clean = _clean_so_far(view)
    if not figures.compile.begun:
        clean = f"{clean} and no compile activity"
    elif not view.judgement.clean_steps or not name:
        clean = f"{clean} since the last compile activity"
    return _after("warming", clean, ", "), Clause(name, Kind.WAIT, joint=": "), *_off(view)


def _off(view: RankView) -> tuple[Clause, ...]:
    """Why steps are clean if compilation is turned off."""
    off = turned_off(view.figures)
    return (Clause(off, Kind.REASON),) if off else ()


def _no_step_yet(view: RankView) -> StateText:
    quiet = view.figures.progress.quiet_seconds
    if quiet < _PAUSE_SECONDS and view.figures.steps.optimizer is not False:
        spent = view.figures.compile.seconds
        so_far = f"compiled for {duration(spent)} so far, " if spent > 0 else ""
        return (_head(f"no step yet: {so_far}{nothing_compiles(view, ' now')}"),)
    if view.figures.steps.optimizer:
        return (_head(f"no step yet; {nothing_has_compiled(view, quiet)}"),)
    if view.figures.warmups.quiet_limit_seconds is not None:
        return (_after("warming", f"no steps are marked; {_quiet_so_far(view)}"),)
    head = _head(f"no steps seen; {nothing_has_compiled(view, quiet)}")
    return head, Clause(_MARK_STEPS, Kind.REMEDY)


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
    what = " ".join(
        filter(None, ["recompiled", place(*log.reopened_by.function) if log.reopened_by else ""])
    )
    often = of_recompile(view.figures)
    why = (_reason(often),) if often else _why(log.reopened_by)
    if view.figures.warmups.quiet_limit_seconds is not None:
        return _head(f"{what}; {_quiet_so_far(view)}"), *why
    name = so_far(view)
    head = _head(f"{what}, {_clean_so_far(view)} since")
    if not why or seconds_left(view) is None:  # then nothing is left to wait for
        return head, *why, Clause(name, Kind.REASON, joint="; " if why else ": ")
    return head, Clause(name, Kind.WAIT), *why


def _warm(view: RankView) -> StateText:
    figures = view.figures
    step = figures.steps.length
    speed = "" if step is None else f"{took(step)} a step"
    if "nothing_captured" in view.judgement.conditions:
        nothing, why = nothing_captured(figures)
        head = _after(f"warm, but {nothing}", "this is eager speed", ": ")
        return head, Clause(speed, Kind.WAIT, beyond=""), Clause(why, Kind.REASON)
    if view.judgement.warm_by in _WITHOUT_STEPS:
        return (_warm_without_steps(view),)
    if not figures.compile.begun and figures.compile.precompiled:
        return _after("warm", runs_ahead(figures), ", "), _speed_clause(view)
    if not figures.compile.begun:
        graphs = counted(figures.compile.graphs_before or 0, "graph")
        return (_head(f"no compile event since it was attached; {graphs} before that"),)
    since = f"since step {figures.warmups.warm_at_step}"
    if "silent" in view.judgement.conditions:
        return _after("warm", since, " "), *_off(view)  # it has no speed now
    if speed:
        real = _speed_clause(view)
        head = _head(f"warm {since}: {real.text}", f"{since}: {real.beyond}")
        return head, Clause(brought(figures), Kind.NOTE, joint=", "), *_off(view)
    quiet = figures.progress.compiler_quiet_seconds or 0.0
    return (_after("warm", f"{since}; {nothing_has_compiled(view, quiet)}", " "),)


def _warm_without_steps(view: RankView) -> Clause:
    """``warm; nothing has compiled for 42 s; no steps are marked``: with the basis of that."""
    figures = view.figures
    ahead = not figures.compile.begun and figures.compile.precompiled
    quiet, tail = figures.progress.compiler_quiet_seconds, ""
    if quiet is None:
        quiet = figures.progress.quiet_seconds
        tail = " since it was attached"
    rest = [
        (" ", _WITHOUT_STEPS[view.judgement.warm_by or ""]),
        (", ", runs_ahead(figures) if ahead else ""),
        ("; ", f"{nothing_has_compiled(view, quiet)}{tail}"),
        ("; ", "" if figures.steps.count else "no steps are marked"),
    ]
    return _head(_joined([("", "warm"), *rest]), _joined(rest))


def runs_ahead(figures: Figures) -> str:
    """``runs ahead-of-time compiled code (aoti)``."""
    return f"runs ahead-of-time compiled code ({', '.join(figures.compile.precompiled or ())})"


def _so_far(view: RankView) -> str:
    """Why the speed may not be the real one yet: too few clean steps since the last compile
    activity, a trend in them, or a limit that ends. Empty if it is.
    """
    steps = view.figures.steps
    if steps.trend is not None:
        return f"so far, getting {steps.trend}"
    pair = (steps.clean.count, view.judgement.clean_steps or None)
    count = min((number for number in pair if number is not None), default=FEWEST_STEPS)
    early = count < FEWEST_STEPS if steps.settled is None else not steps.settled
    if early:
        return f"so far, of {counted(count, 'step')}"
    limit = view.limited_by
    return "so far" if limit is not None and limit.ends else ""


def _newest(steps: Steps) -> str:
    """``: 30 ms in the last 32 steps``, if that shows it: the speed may be of fewer."""
    newest, value = steps.newest or 0.0, steps.length or 0.0
    beyond = newest < value if steps.trend == "faster" else newest > value
    shown = took(newest)
    if not beyond or shown == took(value):
        return ""
    return f": {shown} in the last {steps.newest_steps} steps"


def _eager(view: RankView) -> StateText:
    if "never_compiled" in view.judgement.conditions:
        text, why = never_compiled(view.figures)
        return _after(f"eager, but {text}", ""), Clause(why, Kind.REASON)
    if off := turned_off(view.figures):
        return _head(f"runs eagerly: {off}"), _speed_clause(view)
    steps = counted(view.figures.steps.count, "step")
    if view.judgement.warm_by == "ready":
        return (_head(f"ready() was called, and no compile event in {steps}: it runs eagerly"),)
    head = _head(f"no compile activity in {steps}: the model runs eagerly")
    return head, _speed_clause(view), Clause(not_called(view.figures) or "", Kind.REASON)


def _speed_clause(view: RankView) -> Clause:
    """``35 ms a step is the real speed``; without words if it is unknown, or no step comes now.

    With the length of the newest steps, if that shows a trend and there is room.
    """
    steps, so_far = view.figures.steps, _so_far(view)
    if steps.length is None or "silent" in view.judgement.conditions:
        return Clause("", Kind.WAIT)
    claim = so_far or "is the real speed"
    if steps.averaged and so_far in ("", "so far"):
        claim += " on average"
    speed, latest = f"{took(steps.length)} a step", _newest(steps)
    beyond = f"{'the speed' if so_far else 'this'} {claim}{latest}"
    return Clause(f"{speed} {claim}{latest}", Kind.WAIT, f"{speed} {claim}", beyond=beyond)


def _stalled(view: RankView) -> StateText:
    progress = view.figures.progress
    limit = progress.stall_limit_seconds
    name = f" (limit {duration(limit)})" if limit is not None else ""
    no_step = f"no step for {duration(progress.quiet_seconds)}{name}"
    head = _after("stalled", f"{no_step} and {nothing_compiles(view)}")
    text = _since_its_last_batch(view)
    return (head, Clause(text, Kind.REASON)) if text else (head,)


def _since_its_last_batch(view: RankView) -> str:
    """Whether it stands within a step or between two; empty if no DataLoader shows that."""
    progress = view.figures.progress
    if progress.batch_quiet_seconds is None or view.stopped:
        return ""
    if progress.batch_quiet_seconds > progress.quiet_seconds:
        return "it took no batch since: perhaps it waits for data"
    collective = ", perhaps in a collective" if (view.figures.who.world_size or 1) > 1 else ""
    return f"it took a batch since, and stands within the step{collective}"


# steps of an optimizer of torch.optim are seen without it
_MARK_STEPS = "call warmwatch.step() once an iteration if no torch.optim optimizer is used"


def end_of(view: RankView) -> str | None:
    """``finished``, ``failed``, ``interrupted``, ``detached`` or ``lost``; ``None``: it lives."""
    return None if view.living else view.end or State.FINISHED.value


def _finished(view: RankView) -> StateText:
    """With the advice to mark steps, if it compiled and no step was recorded."""
    head = _head(state_title(view), "")
    steps, compile = view.figures.steps, view.figures.compile
    # the first optimizer step may not have come, especially if the run ended while compiling
    early = steps.optimizer or compile.open is not None
    needless = steps.count or not compile.begun or early
    return (head,) if needless else (head, Clause(_MARK_STEPS, Kind.REMEDY))


def _failed(view: RankView) -> StateText:
    """What failed, and how: ``failed after 12 steps: RuntimeError``."""
    title, life = state_title(view), view.figures.life
    if life.exception:
        refused, remedy = REFUSALS.get(life.refusal or "", ("", None))
        what, at = life.exception, life.raised
        raised_in = place(at.name, at.file, at.line) if at else None
        last = view.figures.log.compilations[-1:]
        if last and failure(last[0].failure, None) == life.exception:  # that compilation ended it
            what = failure(last[0].failure, last[0].failure_reason)
            raised_in = failed_at(last[0]) or raised_in
            if last[0].failure_hint or is_break(last[0].failure):
                remedy = remedy_of_failure(last[0])
        clauses = [_after(title, what, ": ")]
        if raised_in:
            # after the clauses on other ranks
            by = f"rank {view.rank} " if (view.figures.who.world_size or 1) > 1 else ""
            why = f": {refused}" if refused else ""
            text = f"{by}raised in {raised_in}{why}"
            clauses.append(Clause(text, Kind.REASON))
        return (*clauses, Clause(remedy, Kind.REMEDY)) if remedy else tuple(clauses)
    if life.exit_code is None and life.signal:
        return (_killed(view, f"killed by {life.signal}{_memory(view)}"),)
    how = "an uncaught exception" if life.exit_code is None else f"exit code {life.exit_code}"
    return (_after(title, f"with {how}", " "),)


def _lost(view: RankView) -> StateText:
    return (_killed(view, "out of memory" if view.oom_killed else ""),)


def _killed(view: RankView, how: str) -> Clause:
    parts = [(", ", _in_a_compilation(view)), (": ", how)]
    return _head(_joined([("", state_title(view)), *parts]), _joined(parts))


def _in_a_compilation(view: RankView) -> str:
    """``while `forward` (model.py:31) compiled``, of a process that was killed meanwhile."""
    if view.figures.compile.open is None:
        return ""
    now = view.figures.log.underway
    target = place(*now.function) if now else ""
    target = backward_of(target) if now and now.backward else target
    return f"while {target} compiled" if target else "in a compilation"


def _memory(view: RankView) -> str:
    return " (out of memory)" if view.oom_killed else ""


def end_of_run(run: RunView) -> Iterator[Clause]:
    """How all of a lost run ended, as far as that is known here."""
    if text := _end_of_run(run):
        yield Clause(text, Kind.REASON)
        if all(view.figures.progress.state_since is None for view in run.ranks):
            yield Clause(_WATCH, Kind.REMEDY)


def _end_of_run(run: RunView) -> str:
    if run.state is not State.LOST or any(view.oom_killed for view in run.ranks):
        return ""
    if all(view.figures.life.killed_at_end for view in run.ranks):
        return "its program was done, and it was killed at its end"
    signals = {view.figures.life.signal for view in run.ranks}
    ends = [view.figures.progress.state_since for view in run.ranks]
    values = [end for end in ends if end is not None]
    if len(run.ranks) == 1 and None not in signals:
        return f"killed by {signals.pop()}"
    if len(run.ranks) == 1:
        return "no exit record: killed by a signal, or ended by os._exit or os.exec"
    all_lost = all(view.judgement.state is State.LOST for view in run.ranks)
    if run.ended_together is False or not all_lost:
        return ""
    together = run.ended_together and values
    within = f" within {duration(max(1.0, max(values) - min(values)))}" if together else ""
    if None not in signals:
        return f"all ranks were killed{within} by {' and '.join(sorted(map(str, signals)))}"
    return f"all ranks ended{within}: cancelled, or one was killed and then the others"


def short_end(view: RankView) -> tuple[str, str]:
    """How one rank among others ended: ``failed: RuntimeError``, ``was killed by SIGTERM``."""
    life = view.figures.life
    if end_of(view) == "finished":
        return "finished", " first"
    if end_of(view) == "interrupted":
        return "was", " interrupted (SIGINT, Ctrl-C)"
    if view.judgement.state is State.LOST and life.signal:
        return "was", f" killed by {life.signal}{_memory(view)}"
    if view.judgement.state is State.LOST:
        return "is", f" lost{_memory(view)}"
    if life.exception:
        return "failed", f": {life.exception}"
    if life.signal:
        return "failed", f": killed by {life.signal}{_memory(view)}"
    return "failed", "" if life.exit_code is None else f" with exit code {life.exit_code}"


_WATCH = "a daemon or `warmwatch wait` that runs at the end sees which signal it was"
# of a warm rank whose warm-up did not end by clean steps
_WITHOUT_STEPS = {"quiet": "", "ready": "since ready() was called"}

_BY_STATE: dict[State, Callable[[RankView], StateText]] = {
    State.STARTING: _starting,
    State.COMPILING: partial(_at_work, "compiling"),
    State.WARMING: _warming,
    State.WARM: _warm,
    State.EAGER: _eager,
    State.RECOMPILING: _recompiling,
    State.STALLED: _stalled,
    State.FINISHED: _finished,
    State.FAILED: _failed,
    State.LOST: _lost,
}
