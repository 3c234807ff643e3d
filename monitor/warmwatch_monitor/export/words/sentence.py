"""One clear sentence for a run, and one for all runs.

Every state and number comes from the Snapshot; here are only the words. A sentence names its run
first and answers at once; what differs between ranks is said once, and the rest is in the evidence.
Where the run has several ranks it says which one it speaks of and how many wait for it.
"""

from __future__ import annotations

from warmwatch.verdict import ENDED, WARM, State
from warmwatch_monitor.export.words import differences, ends, observed, silicon
from warmwatch_monitor.export.words.conditions import beside, conditions
from warmwatch_monitor.export.words.deadline import deadline
from warmwatch_monitor.export.words.deadline import words as deadline_words
from warmwatch_monitor.export.words.left import left
from warmwatch_monitor.export.words.pauses import pausing
from warmwatch_monitor.export.words.progress import without_steps
from warmwatch_monitor.export.words.several import Said, several
from warmwatch_monitor.export.words.states import elapsed, says
from warmwatch_monitor.model import RankView, RunView, Snapshot

NO_RUN = (
    'no run is known here; a training with "import warmwatch.auto" shows up when it builds its '
    "optimizer or calls torch.compile, else at its first warmwatch.step()"
)

_RECORDS = "records"
# state -> the condition with which its sentence begins
_LEADS = {State.WARM: "nothing_captured", State.EAGER: "never_compiled"}


def summary(snapshot: Snapshot) -> str:
    """One sentence for all runs: what lives first, the least advanced before all."""
    if not snapshot.runs:
        if (problem := _unread(snapshot)) is not None:
            return f"which runs there are is not known: their records cannot be read: {problem}"
        return observed.no_run(snapshot.observed) if snapshot.observed else NO_RUN
    words = several(
        Said(run.run, run.state, _brief(run), run_sentence(run)) for run in snapshot.runs
    )
    return f"{words}; some records cannot be read" if _unread(snapshot) else words


def _unread(snapshot: Snapshot) -> str | None:
    """Why the records are not known now; a quiet machine is another thing."""
    return next(
        (one.error for one in snapshot.sources if one.source == _RECORDS and not one.up), None
    )


def run_sentence(run: RunView) -> str:
    """One sentence for ``run``: what it does, for how long, and which rank holds it back."""
    speaker = speaker_of(run)
    head, tail = says(speaker)
    if run.state in ENDED:
        ended = f"{run.run}: {head}{_which(run, speaker)}{ends.of_the_whole(run)}"
        return "; ".join([ended, *_in_vain(speaker)])
    clauses = [*_meanwhile(run, speaker), *_losses(run), *_doubts(run)]
    return "; ".join([f"{run.run}: {head}{_which(run, speaker)}{tail}", *clauses])


def _in_vain(speaker: RankView) -> list[str]:
    """Of a run that has ended: that what was asked of the compiler came to nothing."""
    return [clause for name, clause in conditions(speaker) if name in _LEADS.values()]


def _meanwhile(run: RunView, speaker: RankView) -> list[str]:
    """What moves or waits beside the state: steps that are missing, GPUs, compile workers."""
    if quiet := without_steps(run, speaker):
        return [quiet]
    parts: list[str] = []
    if run.state in WARM:
        parts = [silicon.at_work(silicon.of_run(run))]
    elif speaker.judgement.compiling:
        parts = [left(speaker), silicon.waiting(speaker.gpus), silicon.workers(speaker)]
    elif run.state is State.STALLED:
        parts = [silicon.meanwhile(speaker.gpus)]
    parts.append(pausing(speaker))
    return [part for part in parts if part]


def _doubts(run: RunView) -> list[str]:
    """What holds beside the state, what differs between ranks, and which of them nobody sees."""
    apart, unseen = differences.in_short(run), differences.missing(run)
    return [*_conditions(run), *(words for words in (apart, unseen) if words)]


def _conditions(run: RunView) -> list[str]:
    """Each condition once, in the words of the speaker, else of the first rank it holds for."""
    speaker = speaker_of(run)
    words = dict(beside(speaker)) if speaker.living else {}
    for view in run.living:
        for name, clause in conditions(view):
            words.setdefault(name, clause)
    said = _LEADS.get(run.state, "")
    if said in speaker.judgement.conditions:
        words.pop(said)  # the sentence began with it
    return list(words.values())


def speaker_of(run: RunView) -> RankView:
    """The rank that the run's state is about: compiling for longest, else quiet for longest.

    Of warm ones, one that something is the matter with.
    """

    def advancement(view: RankView) -> tuple[bool, bool, float, float]:
        activity = view.figures.compile.open if view.judgement.compiling else None
        began = activity.began_at if activity else view.judgement.clean_steps
        fine = _LEADS.get(run.state) not in view.judgement.conditions
        return (activity is None, fine, began, view.figures.steps.last_at or 0.0)

    return min((v for v in run.ranks if v.judgement.state is run.state), key=advancement)


def _which(run: RunView, speaker: RankView) -> str:
    total = speaker.figures.who.world_size or len(run.ranks)
    if total < 2 or run.state in WARM or run.state is State.FINISHED:
        return ""
    same = sum(view.judgement.state is run.state for view in run.ranks)
    if run.state is State.LOST and same == total:
        return ""
    text = f", rank {speaker.rank} of {total}" if same == 1 else f", {same} of {total} ranks"
    waiting = len(run.living) - same
    holds_back = speaker.judgement.compiling or run.state is State.STALLED
    if waiting < 1 or not holds_back:
        return text
    verb = "rank waits" if waiting == 1 else "ranks wait"
    waits = f"{text}; {waiting} {verb} for {'it' if same == 1 else 'them'}"
    known = deadline(run, speaker)
    return waits if known is None else f"{waits}; {deadline_words(known)}"


def _losses(run: RunView) -> list[str]:
    """Ranks that broke off while others live."""
    broken: dict[str, list[int]] = {}
    for view in run.ranks:
        if view.judgement.state in (State.FAILED, State.LOST):
            broken.setdefault(ends.short(view), []).append(view.rank)
    return [_lost(how, ranks) for how, ranks in broken.items()]


def _lost(how: str, ranks: list[int]) -> str:
    """``rank 6 is lost``, ``ranks 6 and 7 are lost``, ``ranks 4-7 failed: RuntimeError``."""
    if len(ranks) == 2:
        return f"ranks {ranks[0]} and {ranks[1]} {ends.of_several(how)}"
    return f"{differences.numbers(ranks)} {how if len(ranks) == 1 else ends.of_several(how)}"


def _brief(run: RunView) -> str:
    speaker = speaker_of(run)
    if not speaker.judgement.compiling:
        return run.state.value
    return f"{run.state.value} for {elapsed(speaker)}"
