"""The headline and the details of one run.

Every state and number comes from the Snapshot; this module only has the words. A headline starts
with the run's name and the answer. Differences between ranks appear once; the rest is in the
details and the evidence. With several ranks, the headline names its rank and counts waiting ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import chain

from msgspec import structs

from warmwatch.shared.phrases import counted, took
from warmwatch.shared.states import ENDED, WARM, State
from warmwatch.shared.values import REASONS
from warmwatch_monitor.figures.declared import Kind
from warmwatch_monitor.figures.rank import Spread
from warmwatch_monitor.model.causes import slow_rank, spread
from warmwatch_monitor.model.snapshot import RankView, RunView
from warmwatch_monitor.output.amounts import consecutive, limited, limited_shortly, spans
from warmwatch_monitor.output.summary import Clause, Headline, headline
from warmwatch_monitor.status.words import gpus
from warmwatch_monitor.status.words.conditions import conditions, conditions_beyond, remedy_of
from warmwatch_monitor.status.words.progress import (
    NEAR,
    busy_workers,
    deadline,
    deadline_words,
    halted,
    is_frozen,
    left,
    pausing,
    without_steps,
)
from warmwatch_monitor.status.words.requested import last_remedy
from warmwatch_monitor.status.words.states import (
    LEADS,
    describe_state,
    elapsed,
    end_of,
    end_of_run,
    in_phase,
    leads_with,
    short_end,
    state_title,
    state_words,
)

_LISTED = 8  # ranges of ranks
# A difference in compile time is reported if it is this long and this large a share.
_APART_SECONDS, _APART_SHARE = 5.0, 0.2


def numbers(ranks: Sequence[int]) -> str:
    """Ranks for a reader: ``rank 3``, ``ranks 4-7, 12``."""
    return ranges(consecutive(ranks))


def ranges(parts: Sequence[range]) -> str:
    shown = spans(parts[:_LISTED], ", ")
    left_out = sum(map(len, parts[_LISTED:]))
    more = f" and {left_out} more" if left_out else ""
    return f"{'rank' if sum(map(len, parts)) == 1 else 'ranks'} {shown}{more}"


def compiled_longer(seconds: Spread | None, others: str) -> Iterator[str]:
    """``rank 5 compiled 57.8 s longer than rank 0``, if the difference is large."""
    gap = seconds.max - seconds.min if seconds else 0.0
    if seconds and gap >= max(_APART_SECONDS, _APART_SHARE * seconds.max):
        yield f"rank {seconds.max_rank} compiled {took(gap)} longer than {others}"


def differs(noun: str, count: Spread | None) -> Iterator[str]:
    """``3 graphs in rank 1, 2 in rank 0``, unless all ranks have as many."""
    if count and count.min != count.max:
        most = f"{counted(round(count.max), noun)} in rank {count.max_rank}"
        yield f"{most}, {round(count.min)} in rank {count.min_rank}"


def only_some(categories: Mapping[int, Set[str | None]]) -> Iterator[str]:
    """``only rank 5 recompiled (shape)``; ``categories``: of each rank's recompiles."""
    for category, ranks in some_ranks(categories):
        yield f"only {numbers(ranks)} recompiled ({category})"


def some_ranks(categories: Mapping[int, Set[str | None]]) -> Iterator[tuple[str, list[int]]]:
    """The categories for which some ranks recompiled, but not all, and these ranks."""
    for category in REASONS:
        ranks = [rank for rank, names in categories.items() if category in names]
        if ranks and len(ranks) < len(categories):
            yield category, ranks


def run_answer(run: RunView) -> Headline:
    """What ``run`` does, for how long, which rank holds it back; then the other clauses."""
    decisive = decisive_rank(run)
    of_run = structs.replace(_with_stretch(run, decisive), limited_by=run.limited_by)
    head, *of_state = describe_state(of_run)
    if which := _which(run, decisive):
        beyond = None if head.beyond is None else ", ".join(filter(None, [head.beyond, which]))
        head = structs.replace(head, text=f"{head.text}, {which}", beyond=beyond)
    head = structs.replace(head, short=title(run))
    over = run.state in ENDED or leads_with(decisive) == "exiting"
    sources = (_ended,) if over else SOURCES
    others = (clause for source in sources for clause in source(run, decisive))
    return headline(run.run, head, [*of_state, *others])


def title(run: RunView) -> str:
    """Its state and its most important figure, for large type: ``warm, 36 ms a step``."""
    return state_title(_with_stretch(run, decisive_rank(run)))


def _with_stretch(run: RunView, decisive: RankView) -> RankView:
    """``decisive``, compiling for as long as its run does."""
    figures, stretch = decisive.figures, run.stretch
    if stretch is None or stretch is figures.progress.stretch:
        return decisive
    progress = structs.replace(figures.progress, stretch=stretch)
    return structs.replace(decisive, figures=structs.replace(figures, progress=progress))


def _ended(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """How it ended, what the other ranks ended of, and whether compilation achieved nothing."""
    yield from end_of_run(run)
    if run.state is State.FAILED:
        yield from _losses(run, decisive)
    for name, clause in conditions(decisive).items():
        if name in LEADS.values() or remedy_of(name, decisive):
            yield Clause(clause.text, clause.kind)
    yield from _remedies(run, decisive)


def _waiting(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """Ranks that wait for the one that compiles, and when their collective gives up."""
    same = _in_its_state(run)
    waiting = len(run.living) - same
    holds_back = decisive.judgement.compiling or run.state is State.STALLED
    if waiting < 1 or not holds_back or _world(run, decisive) < 2 or run.state in WARM:
        return
    verb = "rank waits" if waiting == 1 else "ranks wait"
    yield Clause(f"{waiting} {verb} for {'it' if same == 1 else 'them'}", Kind.WAIT)
    nearest = deadline(run, decisive)
    if nearest is not None and nearest.left_seconds < NEAR * nearest.timeout_seconds:
        yield deadline_words(nearest)


def _stopped(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """Ranks whose process is stopped or frozen: they would look slow or hung."""
    stopped = [view for view in run.living if view.stopped]
    ranks = [view.rank for view in stopped]
    if ranks and ranks != [decisive.rank]:
        halts = " frozen" if all(map(is_frozen, stopped)) else " stopped"
        yield Clause(_of_ranks("is", halts, ranks), Kind.WAIT)
    elif ranks and "long_compile" not in decisive.judgement.conditions:  # else its words contain it
        yield Clause(halted(decisive), Kind.WAIT, halted(decisive, short=True))


def _meanwhile(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """What else moves or waits: missing steps, GPUs, compile workers."""
    if decisive.stopped:
        return
    quiet = without_steps(run, decisive, in_head=leads_with(decisive) == "silent")
    if quiet is not None:
        yield Clause(quiet, Kind.WAIT)
        return
    yield Clause(pausing(decisive), Kind.WAIT)
    if run.state in WARM:
        progress = decisive.figures.progress
        silent = "silent" in decisive.judgement.conditions  # the figures are of that silence
        pair = (progress.compiler_quiet_seconds, None if silent else progress.gap_seconds)
        since = min((value for value in pair if value is not None), default=None)
        yield Clause(gpus.training(gpus.of_run(run), since), Kind.CONTEXT)
    elif decisive.judgement.compiling:
        activity, pool = decisive.figures.compile.open, decisive.figures.workers
        yield Clause(left(_with_stretch(run, decisive)), Kind.WAIT)
        if decisive.gpus:
            since = activity.seconds if activity else 0.0
            yield Clause(gpus.waiting(decisive.gpus, since), Kind.CONTEXT)
        if pool and pool.count:
            idle = f"{counted(pool.count, 'compile worker')} idle"
            yield Clause(busy_workers(pool) or idle, Kind.CONTEXT)
    elif run.state is State.STALLED:
        yield Clause(gpus.meanwhile(decisive.gpus), Kind.CONTEXT)


def _limit(run: RunView, _decisive: RankView) -> Iterator[Clause]:
    """What limits its speed, and the only rank or the number of ranks that have this limit."""
    if (limit := run.limited_by) is None:
        return
    verdicts = {view.rank: view.limited_by and view.limited_by.verdict for view in run.living}
    ranks = [rank for rank, verdict in verdicts.items() if verdict == limit.verdict]
    text = limited_shortly(limit)
    if len(ranks) == 1 < len(verdicts):
        text += f", rank {ranks[0]} of {len(verdicts)}"
    elif len(ranks) < len(verdicts):
        text += f", {len(ranks)} of {len(verdicts)} ranks"
    evidence = ", ".join(limit.evidence)
    yield Clause(text, Kind.LIMIT, alone=limited(limit), evidence=evidence)


def _losses(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """Ranks that ended before the others, except as the headline of a failed run says."""
    broken = defaultdict[tuple[str, str], list[int]](list)
    for view in run.ranks:
        end = end_of(view)
        first = run.state is not State.FAILED or _failed_at(view) < _failed_at(decisive)
        if end in ("failed", "lost", "interrupted") or (end == "finished" and first):
            broken[short_end(view)].append(view.rank)
    if run.state is State.FAILED:
        del broken[short_end(decisive)]
    for (verb, how), ranks in broken.items():
        yield Clause(_of_ranks(verb, how, ranks), Kind.LOSS)


def _conditions(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """Each condition once, in the words of the decisive rank, else of the first that has it."""
    clauses = conditions_beyond(decisive) if decisive.living else {}
    for view in run.living:
        clauses = {**conditions(view), **clauses}
    in_head = {LEADS.get(run.state), leads_with(decisive)} & {*decisive.judgement.conditions}
    yield from (clause for name, clause in clauses.items() if name not in in_head)
    yield from _remedies(run, decisive)


def _remedies(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """What to do about the conditions that hold, each once."""
    views = (decisive, *run.ranks)
    every = (remedy_of(name, view) for view in views for name in view.judgement.conditions)
    texts = dict.fromkeys(filter(None, every))
    for text in texts:
        if not any(text in other for other in texts if other != text):
            yield Clause(text, Kind.REMEDY)


def _changing(_run: RunView, decisive: RankView) -> Iterator[Clause]:
    """The changing size that prevents the first warm-up.

    After the first warm-up, the recompile reason and ``thrashing`` report it.
    """
    shown = [remedy_of(name, decisive) for name in decisive.judgement.conditions]
    clause = last_remedy(decisive.figures.log, shown)
    if clause is not None and not decisive.figures.warmups.count:
        yield Clause(clause.text, Kind.ATTENTION)


def _differences(run: RunView, _decisive: RankView) -> Iterator[Clause]:
    """What differs between ranks, and which ranks are not visible here."""
    for text in (main_difference(run), missing(run)):
        yield Clause(text or "", Kind.NOTE)


def _failed_starts(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """How the start before failed, until this one has warmed up."""
    if run.failed_starts and not decisive.figures.warmups.count:
        count, last = len(run.failed_starts), run.failed_starts[-1]
        was = "was " if last.state is State.LOST else ""
        how = f"{was}{describe_state(decisive_rank(last))[0].text}"
        if count == 1:
            yield Clause(f"the start before {how}", Kind.LOSS, "the start before failed")
        else:
            short = f"{count} starts before failed"
            yield Clause(f"{short}, the last {how}", Kind.LOSS, short)


# All functions that yield clauses of a living run, in addition to ``states.describe_state``.
SOURCES: tuple[Callable[[RunView, RankView], Iterator[Clause]], ...] = (
    _waiting,
    _stopped,
    _limit,
    _meanwhile,
    _losses,
    _failed_starts,
    _conditions,
    _changing,
    _differences,
)


def decisive_rank(run: RunView) -> RankView:
    """The rank that decides the state of the run: compiling for longest, else quiet for longest.

    Among warm ranks, one with a condition comes first; among failed ones, the one that failed
    first, of which the others may have failed.
    """
    if run.state is State.FAILED:
        return min((v for v in run.ranks if v.judgement.state is run.state), key=_failed_at)

    def advancement(view: RankView) -> tuple[bool, bool, float, float]:
        activity = view.figures.compile.open if view.judgement.compiling else None
        began = activity.began_at if activity else view.judgement.clean_steps
        fine = not {LEADS.get(run.state), "silent", "slower"} & set(view.judgement.conditions)
        return (activity is None, fine, began, view.figures.steps.last_at or 0.0)

    return min((v for v in run.ranks if v.judgement.state is run.state), key=advancement)


# A daemon may see a process end without an exception after its peers have failed of it.
_SEEN_LATE = 1.0


def _failed_at(view: RankView) -> float:
    return failed_at(view.figures.progress.state_since, view.figures.life.exception)


def failed_at(seen_at: float | None, exception: str | None) -> float:
    """When a rank failed, to find the first one."""
    at = math.inf if seen_at is None else seen_at
    return at if exception else at - _SEEN_LATE


def _world(run: RunView, decisive: RankView) -> int:
    return decisive.figures.who.world_size or len(run.ranks)


def _in_its_state(run: RunView) -> int:
    return sum(view.judgement.state is run.state for view in run.ranks)


def _which(run: RunView, decisive: RankView) -> str:
    total, same = _world(run, decisive), _in_its_state(run)
    if run.state is State.FAILED:
        same = sum(short_end(view) == short_end(decisive) for view in run.ranks)
    if total < 2 or run.state in WARM or run.state is State.FINISHED:
        return ""
    if run.state is State.LOST and same == total:
        return ""
    return f"rank {decisive.rank} of {total}" if same == 1 else f"{same} of {total} ranks"


_PLURAL = {"is": "are", "was": "were"}


def _of_ranks(verb: str, how: str, ranks: list[int]) -> str:
    """``rank 6 is lost``, ``ranks 6 and 7 are lost``, ``ranks 4-7 failed: RuntimeError``."""
    named = f"ranks {ranks[0]} and {ranks[1]}" if len(ranks) == 2 else numbers(ranks)
    return f"{named} {_PLURAL.get(verb, verb) if len(ranks) > 1 else verb}{how}"


def brief(run: RunView) -> str:
    decisive = decisive_rank(run)
    if not decisive.judgement.compiling:
        return state_words(decisive)
    view = _with_stretch(run, decisive)
    return f"{run.state.value} for {elapsed(view)}{in_phase(view)}"


# words of ``main_difference`` for a category that all training loops with an evaluation have
_ALSO = {"grad_mode": "compiled its evaluation"}


def missing(run: RunView) -> str | None:
    """The ranks that this host does not see, in words; ``None`` if it sees all.

    They are reported as missing, never assumed to be fine.
    """
    absent = run.missing_ranges
    if not absent:
        return None
    count = sum(map(len, absent))
    are = "is" if count == 1 else "are"
    return f"{count} of {run.world_size} ranks ({ranges(absent)}) {are} not seen here"


def differences(run: RunView) -> list[str]:
    """Where ranks compiled different things or took far longer than others, one sentence each.

    None before all of them are warm: until then they must differ.
    """
    ranks = _warm_ranks(run)
    counts = [
        *differs("graph", spread(ranks, lambda view: view.figures.compile.graphs)),
        *differs("recompile", spread(ranks, lambda view: view.figures.compile.recompiles)),
    ]
    seconds = spread(ranks, lambda view: view.figures.compile.seconds)
    return [
        *_slow(ranks),
        *([f"ranks compiled different things: {'; '.join(counts)}"] if counts else []),
        *only_some(_categories(ranks)),
        *compiled_longer(seconds, f"rank {seconds.min_rank}" if seconds else ""),
    ]


def main_difference(run: RunView) -> str | None:
    """The one difference that a sentence has room for; all of them are in :func:`differences`."""
    ranks = _warm_ranks(run)
    also = (
        f"{numbers(hit)} also {_ALSO.get(category, f'recompiled ({category})')}"
        for category, hit in some_ranks(_categories(ranks))
    )
    seconds = spread(ranks, lambda view: view.figures.compile.seconds)
    graphs = differs("graph", spread(ranks, lambda view: view.figures.compile.graphs))
    longer = compiled_longer(seconds, _others(ranks))
    return next(chain(_slow(ranks), also, longer, graphs), None)


def _warm_ranks(run: RunView) -> tuple[RankView, ...]:
    """The living ranks; none unless all of them are warm."""
    return run.living if all(view.judgement.warm for view in run.living) else ()


def _slow(ranks: Sequence[RankView]) -> Iterator[str]:
    """``rank 3 takes 12 % longer for a step than the others: GPU clock of rank 3 ...``."""
    if (rank := slow_rank(ranks)) is None:
        return
    more = f"{100 * (rank.ratio - 1):.0f} % longer for a step than {_others(ranks)}"
    if rank.ratio >= 2:
        more = f"{rank.ratio:.1f} times as long for a step as {_others(ranks)}"
    yield ": ".join(filter(None, [f"rank {rank.rank} takes {more}", ", ".join(rank.causes)]))


def _others(ranks: Sequence[RankView]) -> str:
    return "the others" if len(ranks) > 2 else "the other"


def _categories(ranks: Sequence[RankView]) -> dict[int, set[str]]:
    """For which categories each rank recompiled."""
    counts = {view.rank: view.figures.compile.recompiles_by_category or {} for view in ranks}
    return {rank: {name for name in values if values[name]} for rank, values in counts.items()}
