"""One clear sentence for a run, and one for all runs.

Every state and number comes from the Snapshot; here are only the words. A sentence names its run
first; where the run has several ranks it says which one it speaks of and how many wait for it.
"""

from __future__ import annotations

from collections.abc import Callable

from warmwatch.record import ENDS
from warmwatch.verdict import ENDED, WARM, State
from warmwatch_monitor.export import figures, observed, ranks, silicon
from warmwatch_monitor.export.conditions import conditions
from warmwatch_monitor.export.wording import counted, duration, step_length, why
from warmwatch_monitor.model import Compilation, RankView, RunView, Snapshot

NO_RUN = 'no run is known here; add "import warmwatch.auto" to the training script and start it'

# what the sentence says before and after the words about ranks
Says = tuple[str, str]


def summary(snapshot: Snapshot) -> str:
    """One sentence for all runs, the least advanced first."""
    if not snapshot.runs:
        return observed.no_run(snapshot.observed) if snapshot.observed else NO_RUN
    if len(snapshot.runs) == 1:
        return run_sentence(snapshot.runs[0], snapshot.now_ns)
    order = figures.by_advancement(run.state for run in snapshot.runs)
    runs = sorted(snapshot.runs, key=lambda run: order.index(run.state))
    briefs = "; ".join(f"{run.run} {_brief(run, snapshot.now_ns)}" for run in runs)
    return f"{len(runs)} runs: {briefs}"


def run_sentence(run: RunView, now_ns: int) -> str:
    """One sentence for ``run``: what it does, for how long, and which rank holds it back."""
    speaker = _speaker(run)
    head, tail = _SAYS[run.state](speaker, now_ns)
    doubts = "" if run.state in ENDED else "".join(f"; {words}" for words in _doubts(run, now_ns))
    tail = _with_silicon(run, speaker, tail)
    return f"{run.run}: {head}{_which(run, speaker)}{tail}{_losses(run)}{doubts}"


def _with_silicon(run: RunView, speaker: RankView, tail: str) -> str:
    """The tail with what the GPUs do meanwhile, and for a compilation its workers."""
    if run.state in WARM:
        said = silicon.at_work(silicon.of_run(run))
        return f"; {said}: {tail.removeprefix('; ')}".removesuffix(": ") if said else tail
    parts = [tail]
    if speaker.judgement.compiling:
        parts += [silicon.waiting(speaker.gpus), silicon.workers(speaker)]
    elif run.state is State.STALLED:
        parts.append(silicon.meanwhile(speaker.gpus))
    return "; ".join([tail, *filter(None, parts[1:])])


def _doubts(run: RunView, now_ns: int) -> list[str]:
    """What holds beside the state, what differs between ranks, and which of them nobody sees."""
    unseen = ranks.missing_words(run)
    return [*_conditions(run), *ranks.differences(run, now_ns), *([unseen] if unseen else [])]


def _conditions(run: RunView) -> list[str]:
    """Each condition once, in the words of the first rank for which it holds."""
    words: dict[str, str] = {}
    for view in run.ranks:
        for name, clause in conditions(view) if figures.is_living(view) else ():
            words.setdefault(name, clause)
    return list(words.values())


def _speaker(run: RunView) -> RankView:
    """The rank that the run's state is about: compiling for longest, else quiet for longest."""

    def advancement(view: RankView) -> tuple[int, int, int]:
        slot = view.reading.slot
        active = slot.compile.active_since_ns if view.judgement.compiling else 0
        return (not active, active or view.judgement.clean_steps, slot.steps.last_step_ns)

    return min((v for v in run.ranks if v.judgement.state is run.state), key=advancement)


def _which(run: RunView, speaker: RankView) -> str:
    total = speaker.reading.slot.identity.world_size or len(run.ranks)
    if total < 2 or run.state in WARM or run.state is State.FINISHED:
        return ""
    same = sum(view.judgement.state is run.state for view in run.ranks)
    text = f", rank {speaker.rank} of {total}" if same == 1 else f", {same} of {total} ranks"
    waiting = sum(map(figures.is_living, run.ranks)) - same
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


def _brief(run: RunView, now_ns: int) -> str:
    speaker = _speaker(run)
    if not speaker.judgement.compiling:
        return run.state.value
    return f"{run.state.value} for {_elapsed(speaker, now_ns)}"


def _elapsed(view: RankView, now_ns: int) -> str:
    phase = f" ({view.judgement.phase})" if view.judgement.phase else ""
    return duration((figures.in_progress_ns(view, now_ns) or 0) / 1e9) + phase


def _starting(view: RankView, now_ns: int) -> Says:
    attached = duration(figures.quiet_ns(view, now_ns) / 1e9)
    return f"starting; no step and no compile activity in the {attached} since it attached", ""


def _compiling(view: RankView, now_ns: int) -> Says:
    return f"compiling for {_elapsed(view, now_ns)}", ""


def _warming(view: RankView, now_ns: int) -> Says:
    slot = view.reading.slot
    if not slot.steps.steps:
        quiet = duration(figures.quiet_ns(view, now_ns) / 1e9)
        return f"no steps seen; nothing has compiled for {quiet}", ""
    progress = f"{view.judgement.clean_steps} of {slot.header.warm_steps} clean steps"
    since = "since the last compile activity" if slot.compile.begun else "and no compile activity"
    return f"warming, {progress} {since}", ""


def _recompiling(view: RankView, now_ns: int) -> Says:
    slot = view.reading.slot
    reason = _reason(view)
    tail = f": {why(reason)}" if reason else ""
    if view.judgement.compiling:
        return f"recompiling for {_elapsed(view, now_ns)} after being warm", tail
    progress = f"{view.judgement.clean_steps} of {slot.header.warm_steps} clean steps"
    return f"recompiled after being warm, {progress} since", tail


def _reason(view: RankView) -> Compilation | None:
    """The first compilation of the warm-up now open that says why."""
    began = view.reading.slot.compile.episode_began_ns
    since = (c for c in view.reading.compilations if c.at_ns >= began)
    return next((c for c in since if c.reason), None)


def _warm(view: RankView, now_ns: int) -> Says:
    slot = view.reading.slot
    if not slot.compile.begun:
        graphs = counted(slot.compile.graphs_before, "graph")
        return f"nothing has compiled since it was attached; {graphs} before that", ""
    quiet = duration((now_ns - slot.compile.last_end_ns) / 1e9)
    text = f"warm since step {figures.warm_at_step(slot)}; nothing has compiled for {quiet}"
    median = figures.median_step_ns(slot)
    real = "" if median is None else f"; {step_length(median / 1e9)} a step is the real speed"
    return text, real


def _eager(view: RankView, _now_ns: int) -> Says:
    steps = counted(view.reading.slot.steps.steps, "step")
    return f"no compile activity in {steps}: the model runs eagerly", ""


def _stalled(view: RankView, now_ns: int) -> Says:
    quiet = duration(figures.quiet_ns(view, now_ns) / 1e9)
    limit = duration(figures.stall_limit_ns(view) / 1e9)
    return f"stalled; no step for {quiet} (limit {limit}) and nothing compiles", ""


def _finished(view: RankView, _now_ns: int) -> Says:
    slot = view.reading.slot
    how = "detached" if ENDS[slot.compile.end_code] == "detached" else "finished"
    return f"{how} after {counted(slot.steps.steps, 'step')}", ""


def _failed(view: RankView, _now_ns: int) -> Says:
    steps = counted(view.reading.slot.steps.steps, "step")
    return f"failed after {steps} with an uncaught exception", ""


def _lost(view: RankView, _now_ns: int) -> Says:
    steps = counted(view.reading.slot.steps.steps, "step")
    return f"lost after {steps}; the process is gone and said nothing", ""


_SAYS: dict[State, Callable[[RankView, int], Says]] = {
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
