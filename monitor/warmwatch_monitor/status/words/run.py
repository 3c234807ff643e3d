"""The headline and the details of one run.

Every state and number comes from the Snapshot; this module only has the words. A headline starts
with the run's name and the answer. Differences between ranks appear once; the rest is in the
details and the evidence. With several ranks, the headline names its rank and counts waiting ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import structs

from warmwatch.shared.phrases import counted, duration
from warmwatch.shared.states import ENDED, WARM, State
from warmwatch_monitor.model import (
    REASONS,
    RankView,
    RunView,
    slow_rank,
    spread,
)
from warmwatch_monitor.output.amounts import consecutive, limited, limited_shortly, spans
from warmwatch_monitor.output.summary import (
    Clause,
    Headline,
    Importance,
    headline,
)
from warmwatch_monitor.published import Spread
from warmwatch_monitor.status.words import gpus
from warmwatch_monitor.status.words.conditions import (
    IMPORTANCE,
    SHORT_BEFORE,
    conditions,
    remedy_of,
    short_conditions,
)
from warmwatch_monitor.status.words.progress import (
    NEAR,
    deadline,
    deadline_words,
    left,
    pausing,
    without_steps,
)
from warmwatch_monitor.status.words.requested import remedy
from warmwatch_monitor.status.words.states import (
    LEADS,
    describe_state,
    elapsed,
    end_of_run,
    leads_with,
    of_several_ends,
    short_end,
)


def run_answer(run: RunView) -> Headline:
    """What ``run`` does, for how long, which rank holds it back; then the other clauses."""
    decisive = decisive_rank(run)
    head, of_state = describe_state(_with_stretch(run, decisive))
    sources = _SOURCES_OF_ENDED if run.state in ENDED else SOURCES
    others = (clause for source in sources for clause in source(run, decisive))
    return headline(run.run, f"{head}{_which(run, decisive)}", [*of_state, *others])


def _with_stretch(run: RunView, decisive: RankView) -> RankView:
    """``decisive``, compiling for as long as its run does."""
    figures, stretch = decisive.figures, run.stretch
    if stretch is None or stretch is figures.progress.stretch:
        return decisive
    progress = structs.replace(figures.progress, stretch=stretch)
    return structs.replace(decisive, figures=structs.replace(figures, progress=progress))


def run_sentence(run: RunView) -> str:
    """The headline of ``run``, without its details."""
    return run_answer(run).summary


def _ended(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """How it ended, and whether compilation achieved nothing."""
    yield from end_of_run(run)
    for name, words in conditions(decisive):
        if name in LEADS.values() or remedy_of(name, decisive):
            yield Clause(words, Importance.ATTENTION)
    yield from _remedies(run, decisive)


def _waiting(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """Ranks that wait for the one that compiles, and when their collective gives up."""
    same = _in_its_state(run)
    waiting = len(run.living) - same
    holds_back = decisive.judgement.compiling or run.state is State.STALLED
    if waiting < 1 or not holds_back or _world(run, decisive) < 2 or run.state in WARM:
        return
    verb = "rank waits" if waiting == 1 else "ranks wait"
    yield Clause(f"{waiting} {verb} for {'it' if same == 1 else 'them'}", Importance.WAIT)
    known = deadline(run, decisive)
    if known is not None and known.left_seconds < NEAR * known.timeout_seconds:
        yield deadline_words(known)


def _is_stopped(view: RankView) -> bool:
    return view.process is not None and view.process.stopped


def _stopped(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """Ranks whose process is stopped: they would look slow or hung."""
    ranks = [view.rank for view in run.living if _is_stopped(view)]
    if ranks and ranks != [decisive.rank]:
        yield Clause(_of_ranks("is stopped", ranks), Importance.WAIT)
    elif ranks and "long_compile" not in decisive.judgement.conditions:  # else its words contain it
        short = "its process is stopped"
        yield Clause(f"{short} (SIGSTOP, Ctrl-Z, a debugger)", Importance.WAIT, short)


def _meanwhile(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """What else moves or waits: missing steps, GPUs, compile workers."""
    if _is_stopped(decisive):
        return
    quiet = without_steps(run, decisive, in_head=leads_with(decisive) == "silent")
    if quiet is not None:
        yield Clause(quiet, Importance.WAIT)
        return
    yield Clause(pausing(decisive), Importance.WAIT)
    if run.state in WARM:
        progress = decisive.figures.progress
        silent = "silent" in decisive.judgement.conditions  # the figures are of that silence
        known = (progress.compiler_quiet_seconds, None if silent else progress.gap_seconds)
        since = min((one for one in known if one is not None), default=None)
        yield Clause(gpus.training(gpus.of_run(run), since), Importance.CONTEXT)
    elif decisive.judgement.compiling:
        yield Clause(left(_with_stretch(run, decisive)), Importance.WAIT)
        activity = decisive.figures.compile.open
        since = activity.seconds if activity else 0.0
        if decisive.gpus:
            yield Clause(gpus.waiting(decisive.gpus, since), Importance.CONTEXT)
        yield Clause(_workers(decisive), Importance.CONTEXT)
    elif run.state is State.STALLED:
        yield Clause(gpus.meanwhile(decisive.gpus), Importance.CONTEXT)


def _workers(view: RankView) -> str:
    """``16 compile workers idle``; empty without a pool."""
    pool = view.figures.workers
    if pool is None or not pool.count:
        return ""
    if pool.busy:
        return f"{pool.busy} of {counted(pool.count, 'compile worker')} busy"
    return f"{counted(pool.count, 'compile worker')} idle"


def _limit(run: RunView, _decisive: RankView) -> Iterator[Clause]:
    """What limits its speed, and the only rank or the number of ranks that have this limit."""
    if (known := run.limited_by) is None:
        return
    limits = {view.rank: view.limited_by for view in run.living}
    ranks = [rank for rank, one in limits.items() if one and one.verdict == known.verdict]
    words = limited_shortly(known)
    if len(ranks) == 1 < len(limits):
        words += f", rank {ranks[0]} of {len(limits)}"
    elif len(ranks) < len(limits):
        words += f", {len(ranks)} of {len(limits)} ranks"
    yield Clause(words, Importance.CONTEXT, alone=limited(known), in_full=True)


def _losses(run: RunView, _decisive: RankView) -> Iterator[Clause]:
    """Ranks that failed or were lost while others live."""
    broken: dict[str, list[int]] = {}
    for view in run.ranks:
        if view.judgement.state in (State.FAILED, State.LOST):
            broken.setdefault(short_end(view), []).append(view.rank)
    for how, ranks in broken.items():
        yield Clause(_of_ranks(how, ranks), Importance.LOSS)


def _conditions(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """Each condition once, in the words of the decisive rank, else of the first that has it."""
    words = dict(short_conditions(decisive)) if decisive.living else {}
    for view in run.living:
        for name, clause in conditions(view):
            words.setdefault(name, clause)
    for condition in (LEADS.get(run.state, ""), leads_with(decisive)):
        if condition in decisive.judgement.conditions:
            words.pop(condition, None)  # the sentence starts with it
    for name, clause in words.items():
        short = re.split(SHORT_BEFORE.get(name, r" \("), clause, maxsplit=1)[0]
        yield Clause(clause, IMPORTANCE.get(name, Importance.NOTE), short)
    yield from _remedies(run, decisive)


def _remedies(run: RunView, decisive: RankView) -> Iterator[Clause]:
    """What to do about the conditions that hold, each once."""
    found: dict[str, None] = {}
    for view in (decisive, *run.ranks):
        for name in view.judgement.conditions:
            if remedy := remedy_of(name, view):
                found[remedy] = None
    for words in found:
        yield Clause(words, Importance.REMEDY)


def _changing(_run: RunView, decisive: RankView) -> Iterator[Clause]:
    """The changing size that prevents the first warm-up.

    After the first warm-up, the recompile reason and ``thrashing`` report it.
    """
    if not decisive.figures.warmups.count:
        known = (remedy(one) for one in reversed(decisive.figures.log.varying))
        yield Clause(next(filter(None, known), ""), Importance.ATTENTION)


def _differences(run: RunView, _decisive: RankView) -> Iterator[Clause]:
    """What differs between ranks, and which ranks are not visible here."""
    for words in (main_difference(run), missing(run)):
        yield Clause(words or "", Importance.NOTE)


# All functions that yield clauses of a living run, in addition to ``states.describe_state``.
SOURCES: tuple[Callable[[RunView, RankView], Iterator[Clause]], ...] = (
    _waiting,
    _stopped,
    _limit,
    _meanwhile,
    _losses,
    _conditions,
    _changing,
    _differences,
)
_SOURCES_OF_ENDED = (_ended,)


def decisive_rank(run: RunView) -> RankView:
    """The rank that decides the state of the run: compiling for longest, else quiet for longest.

    Among warm ranks, one with a condition comes first.
    """

    def advancement(view: RankView) -> tuple[bool, bool, float, float]:
        activity = view.figures.compile.open if view.judgement.compiling else None
        began = activity.began_at if activity else view.judgement.clean_steps
        fine = not {LEADS.get(run.state), "silent", "slower"} & set(view.judgement.conditions)
        return (activity is None, fine, began, view.figures.steps.last_at or 0.0)

    return min((v for v in run.ranks if v.judgement.state is run.state), key=advancement)


def _world(run: RunView, decisive: RankView) -> int:
    return decisive.figures.who.world_size or len(run.ranks)


def _in_its_state(run: RunView) -> int:
    return sum(view.judgement.state is run.state for view in run.ranks)


def _which(run: RunView, decisive: RankView) -> str:
    total, same = _world(run, decisive), _in_its_state(run)
    if total < 2 or run.state in WARM or run.state is State.FINISHED:
        return ""
    if run.state is State.LOST and same == total:
        return ""
    return f", rank {decisive.rank} of {total}" if same == 1 else f", {same} of {total} ranks"


def _of_ranks(how: str, ranks: list[int]) -> str:
    """``rank 6 is lost``, ``ranks 6 and 7 are lost``, ``ranks 4-7 failed: RuntimeError``."""
    if len(ranks) == 2:
        return f"ranks {ranks[0]} and {ranks[1]} {of_several_ends(how)}"
    return f"{numbers(ranks)} {how if len(ranks) == 1 else of_several_ends(how)}"


def brief(run: RunView) -> str:
    decisive = decisive_rank(run)
    if not decisive.judgement.compiling:
        return run.state.value
    return f"{run.state.value} for {elapsed(_with_stretch(run, decisive))}"


_LISTED = 8
# A difference in compile time is reported if it is this long and this large a share.
_APART_SECONDS = 5.0
_APART_SHARE = 0.2
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
    return f"{count} of {run.world_size} ranks ({_ranges(absent)}) {are} not seen here"


def numbers(ranks: Sequence[int]) -> str:
    """Ranks for a reader: ``rank 3``, ``ranks 4-7, 12``."""
    return _ranges(consecutive(ranks))


def _ranges(parts: Sequence[range]) -> str:
    shown = spans(parts[:_LISTED], ", ")
    left_out = sum(map(len, parts[_LISTED:]))
    more = f" and {left_out} more" if left_out else ""
    return f"{'rank' if sum(map(len, parts)) == 1 else 'ranks'} {shown}{more}"


def differences(run: RunView) -> list[str]:
    """Where ranks compiled different things or took far longer than others, one sentence each.

    None before all of them are warm: until then they must differ.
    """
    living = run.living
    if len(living) < 2 or not all(view.judgement.warm for view in living):
        return []
    return [*filter(None, [_slow(living)]), *_different(living), *_apart(living)]


def main_difference(run: RunView) -> str | None:
    """The one difference that a sentence has room for; all of them are in :func:`differences`."""
    living = run.living
    if len(living) < 2 or not all(view.judgement.warm for view in living):
        return None
    return _slow(living) or _also(living) or _slowest(living) or _other(living)


def _slow(ranks: Sequence[RankView]) -> str | None:
    """``rank 3 takes 12 % longer for a step than the others: GPU clock of rank 3 ...``."""
    known = slow_rank(ranks)
    if known is None:
        return None
    others = "the others" if len(ranks) > 2 else "the other"
    more = f"{100 * (known.ratio - 1):.0f} % longer for a step than {others}"
    if known.ratio >= 2:
        more = f"{known.ratio:.1f} times as long for a step as {others}"
    return ": ".join(filter(None, [f"rank {known.rank} takes {more}", ", ".join(known.causes)]))


def _also(ranks: Sequence[RankView]) -> str | None:
    for category in REASONS:
        hit = [view.rank for view in ranks if _recompiled_for(view, category)]
        if hit and len(hit) < len(ranks):
            also = _ALSO.get(category, f"recompiled for {category}")
            return f"{numbers(hit)} also {also}"
    return None


def _slowest(ranks: Sequence[RankView]) -> str | None:
    of = _gap(ranks)
    if of is None:
        return None
    gap, others = of.max - of.min, "the others" if len(ranks) > 2 else "the other"
    return f"rank {of.max_rank} compiled {duration(gap)} longer than {others}"


def _other(ranks: Sequence[RankView]) -> str | None:
    of = spread(ranks, lambda view: view.figures.compile.graphs)
    return _most_and_least("graph", of) if of and of.min != of.max else None


def _different(ranks: Sequence[RankView]) -> Iterable[str]:
    spreads = {
        "graph": spread(ranks, lambda view: view.figures.compile.graphs),
        "recompile": spread(ranks, lambda view: view.figures.compile.recompiles_total),
    }
    found = [_most_and_least(n, s) for n, s in spreads.items() if s and s.min != s.max]
    if found:
        yield f"ranks compiled different things: {'; '.join(found)}"
    for category in REASONS:
        hit = [view.rank for view in ranks if _recompiled_for(view, category)]
        if hit and len(hit) < len(ranks):
            yield f"only {numbers(hit)} recompiled for {category}"


def _most_and_least(noun: str, of: Spread) -> str:
    most = f"{counted(round(of.max), noun)} in rank {of.max_rank}"
    return f"{most}, {round(of.min)} in rank {of.min_rank}"


def _recompiled_for(view: RankView, category: str) -> bool:
    return bool((view.figures.compile.recompiles or {}).get(category))


def _apart(ranks: Sequence[RankView]) -> Iterable[str]:
    if of := _gap(ranks):
        gap, longest = duration(of.max - of.min), of.max_rank
        yield f"rank {longest} compiled {gap} longer than rank {of.min_rank}"


def _gap(ranks: Sequence[RankView]) -> Spread | None:
    """The spread of their compile times; ``None`` if it is small."""
    of = spread(ranks, lambda view: view.figures.compile.seconds)
    if of is None:
        return None
    gap = of.max - of.min
    return of if gap >= max(_APART_SECONDS, _APART_SHARE * of.max) else None
