"""One clear sentence for a run, and one for all runs.

Every state and number comes from the Snapshot; here are only the words. A sentence names its run
first; where the run has several ranks it says which one it speaks of and how many wait for it.
"""

from __future__ import annotations

from collections.abc import Callable

from warmwatch.verdict import ENDED, WARM, State, least_advanced
from warmwatch_monitor.export.words import differences, observed, silicon
from warmwatch_monitor.export.words.conditions import conditions
from warmwatch_monitor.export.words.wording import counted, duration, step_length, why
from warmwatch_monitor.model import RankView, RunView, Snapshot

NO_RUN = 'no run is known here; add "import warmwatch.auto" to the training script and start it'

# what the sentence says before and after the words about ranks
Says = tuple[str, str]


def summary(snapshot: Snapshot) -> str:
    """One sentence for all runs, the least advanced first."""
    if not snapshot.runs:
        return observed.no_run(snapshot.observed) if snapshot.observed else NO_RUN
    if len(snapshot.runs) == 1:
        return run_sentence(snapshot.runs[0])
    order = _by_advancement({run.state for run in snapshot.runs})
    runs = sorted(snapshot.runs, key=lambda run: order.index(run.state))
    briefs = "; ".join(f"{run.run} {_brief(run)}" for run in runs)
    return f"{len(runs)} runs: {briefs}"


def _by_advancement(states: set[State]) -> list[State]:
    """The states, least advanced first."""
    ordered = []
    while states:
        ordered.append(least_advanced(states))
        states = states - {ordered[-1]}
    return ordered


def run_sentence(run: RunView) -> str:
    """One sentence for ``run``: what it does, for how long, and which rank holds it back."""
    speaker = _speaker(run)
    head, tail = _SAYS[run.state](speaker)
    doubts = "" if run.state in ENDED else "".join(f"; {words}" for words in _doubts(run))
    tail = _with_silicon(run, speaker, tail)
    return f"{run.run}: {head}{_which(run, speaker)}{tail}{_losses(run)}{doubts}"


def _with_silicon(run: RunView, speaker: RankView, tail: str) -> str:
    """The tail with what the GPUs do meanwhile, and for a compilation its workers."""
    if run.state in WARM:
        gpus = silicon.at_work(silicon.of_run(run))
        return f"; {gpus}: {tail.removeprefix('; ')}".removesuffix(": ") if gpus else tail
    parts: list[str] = []
    if speaker.judgement.compiling:
        parts = [silicon.waiting(speaker.gpus), silicon.workers(speaker)]
    elif run.state is State.STALLED:
        parts = [silicon.meanwhile(speaker.gpus)]
    return "; ".join([tail, *filter(None, parts)])


def _doubts(run: RunView) -> list[str]:
    """What holds beside the state, what differs between ranks, and which of them nobody sees."""
    unseen = differences.missing(run)
    return [*_conditions(run), *differences.differences(run), *([unseen] if unseen else [])]


def _conditions(run: RunView) -> list[str]:
    """Each condition once, in the words of the first rank for which it holds."""
    words: dict[str, str] = {}
    for view in run.living:
        for name, clause in conditions(view):
            words.setdefault(name, clause)
    return list(words.values())


def _speaker(run: RunView) -> RankView:
    """The rank that the run's state is about: compiling for longest, else quiet for longest."""

    def advancement(view: RankView) -> tuple[bool, float, float]:
        activity = view.figures.compile.open if view.judgement.compiling else None
        began = activity.began_at if activity else view.judgement.clean_steps
        return (activity is None, began, view.figures.steps.last_at or 0.0)

    return min((v for v in run.ranks if v.judgement.state is run.state), key=advancement)


def _which(run: RunView, speaker: RankView) -> str:
    total = speaker.figures.who.world_size or len(run.ranks)
    if total < 2 or run.state in WARM or run.state is State.FINISHED:
        return ""
    same = sum(view.judgement.state is run.state for view in run.ranks)
    text = f", rank {speaker.rank} of {total}" if same == 1 else f", {same} of {total} ranks"
    waiting = len(run.living) - same
    holds_back = speaker.judgement.compiling or run.state is State.STALLED
    if waiting < 1 or not holds_back:
        return text
    verb = "rank waits" if waiting == 1 else "ranks wait"
    return f"{text}; {waiting} {verb} for {'it' if same == 1 else 'them'}"


def _losses(run: RunView) -> str:
    """Ranks that broke off while others live."""
    if run.state in ENDED:
        return ""
    broken = (State.FAILED, State.LOST)
    return "".join(
        f"; rank {view.rank} {'failed' if view.judgement.state is State.FAILED else 'is lost'}"
        for view in run.ranks
        if view.judgement.state in broken
    )


def _brief(run: RunView) -> str:
    speaker = _speaker(run)
    if not speaker.judgement.compiling:
        return run.state.value
    return f"{run.state.value} for {_elapsed(speaker)}"


def _elapsed(view: RankView) -> str:
    phase = f" ({view.judgement.phase})" if view.judgement.phase else ""
    activity = view.figures.compile.open
    return duration(activity.seconds if activity else 0.0) + phase


def _starting(view: RankView) -> Says:
    attached = duration(view.figures.progress.quiet_seconds)
    return f"starting; no step and no compile activity in the {attached} since it attached", ""


def _compiling(view: RankView) -> Says:
    return f"compiling for {_elapsed(view)}", ""


def _warming(view: RankView) -> Says:
    figures = view.figures
    if not figures.steps.count:
        quiet = duration(figures.progress.quiet_seconds)
        return f"no steps seen; nothing has compiled for {quiet}", ""
    begun = figures.compile.begun
    since = "since the last compile activity" if begun else "and no compile activity"
    return f"warming, {_clean_so_far(view)} {since}", ""


def _clean_so_far(view: RankView) -> str:
    return f"{view.judgement.clean_steps} of {view.figures.warmups.clean_steps_needed} clean steps"


def _recompiling(view: RankView) -> Says:
    reason = view.figures.log.reopened_by
    tail = f": {why(reason)}" if reason else ""
    if view.judgement.compiling:
        return f"recompiling for {_elapsed(view)} after being warm", tail
    return f"recompiled after being warm, {_clean_so_far(view)} since", tail


def _warm(view: RankView) -> Says:
    figures = view.figures
    if not figures.compile.begun:
        graphs = counted(figures.compile.graphs_before or 0, "graph")
        return f"nothing has compiled since it was attached; {graphs} before that", ""
    quiet = duration(figures.progress.compiler_quiet_seconds or 0.0)
    text = f"warm since step {figures.warmups.warm_at_step}; nothing has compiled for {quiet}"
    median = figures.steps.clean.median
    return text, "" if median is None else f"; {step_length(median)} a step is the real speed"


def _eager(view: RankView) -> Says:
    steps = counted(view.figures.steps.count, "step")
    return f"no compile activity in {steps}: the model runs eagerly", ""


def _stalled(view: RankView) -> Says:
    progress = view.figures.progress
    limit = progress.stall_limit_seconds
    known = f" (limit {duration(limit)})" if limit is not None else ""
    return (
        f"stalled; no step for {duration(progress.quiet_seconds)}{known} and nothing compiles",
        "",
    )


def _finished(view: RankView) -> Says:
    how = "detached" if view.figures.life.end == "detached" else "finished"
    return f"{how} after {counted(view.figures.steps.count, 'step')}", ""


def _failed(view: RankView) -> Says:
    steps = counted(view.figures.steps.count, "step")
    return f"failed after {steps} with an uncaught exception", ""


def _lost(view: RankView) -> Says:
    steps = counted(view.figures.steps.count, "step")
    return f"lost after {steps}; the process is gone and said nothing", ""


_SAYS: dict[State, Callable[[RankView], Says]] = {
    State.STARTING: _starting,
    State.COMPILING: _compiling,
    State.WARMING: _warming,
    State.WARM: _warm,
    State.EAGER: _eager,
    State.RECOMPILING: _recompiling,
    State.STALLED: _stalled,
    State.FINISHED: _finished,
    State.FAILED: _failed,
    State.LOST: _lost,
}
