"""Estimates how long the current compilation still takes, from earlier runs and other ranks.
Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from warmwatch.shared.record import CompileCounts
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch_monitor.model import RankHistory, RankView, RunView
from warmwatch_monitor.model.figures import Done, EarlierWarmup
from warmwatch_monitor.published import Estimate, copied
from warmwatch_monitor.sources.records.followed_journal import MOST_EVENTS

_DOUBT = 0.05  # of the whole: the least that must have ended to compare this host's speed
_MOST = 4.0  # times as long: a longer compilation was blocked, so it does not scale the rest
_Parts = Mapping[str, float]
_Rest = tuple[float, _Parts]  # seconds, and of them those of each phase


class Now(Struct, frozen=True, kw_only=True):
    """A rank that compiles.

    Attributes:
        seconds: of its first warm-up so far, by the clock; ``None`` in a later one.
        activity_seconds: of the compilation in progress. phase_seconds: of all compile time so far.
        compiled: what has ended, in order; ``None`` where not all of it is known.
        underway: what is compiled now, as far as that is known. own: earlier compilations.
        evaluating: whether an evaluation is in progress.
    """

    activity_seconds: float
    seconds: float | None = None
    phase_seconds: _Parts = field(default_factory=dict)
    compiled: tuple[Done, ...] | None = None
    underway: Done = Done()
    own: tuple[Done, ...] = ()
    evaluating: bool = False


def estimate(now: Now, earlier: Sequence[EarlierWarmup]) -> Estimate | None:
    """The estimate from ``earlier`` warm-ups, latest first; ``None`` if none fits.

    Other ranks of the run compiled the same under the same load, so they take precedence over
    earlier runs. Earlier runs with more compilations than those ranks have by now still count.
    """
    if now.seconds is None:
        return _of_function(now, earlier)
    peers = [one for one in earlier if one.of_rank]
    fitting = [one for one in earlier if _began_the_same(now, one)]
    known = [one for one in fitting if one.of_rank is bool(peers)]
    if further := _further(fitting):
        known, peers = further, []
    if not known:
        return None
    rests = [_rest(now, one) for one in known if one.seconds > now.seconds]
    return _estimate(
        "warmup", now.seconds, [one.seconds for one in known], rests, of_rank=bool(peers)
    )


def _further(fitting: Sequence[EarlierWarmup]) -> list[EarlierWarmup]:
    """Earlier runs with more compilations than the other ranks have by now, if those are known."""
    done = [len(one.compiled) for one in fitting if one.of_rank and one.compiled is not None]
    before = [one for one in fitting if not one.of_rank and one.compiled is not None]
    return [one for one in before if done and len(one.compiled or ()) > max(done)]


def _of_function(now: Now, earlier: Sequence[EarlierWarmup]) -> Estimate | None:
    """The estimate of a recompile: earlier times of the same function, here or in earlier runs.

    If a cache had an earlier compilation of this run, it may have this one: no miss counts. An
    evaluation compiles without gradients, often in a quarter of the time: it has no estimate, and
    its compilations do not count.
    The first compilation of another module of the class counts only for one of its kind: a frozen
    twin has no backward.
    The first compilation of a process never counts. It imports Inductor, builds headers and starts
    workers: a recompile took a third of it on a CPU, and with dynamic shapes half as long again on
    an H100.
    """
    if now.evaluating:
        return None
    cached = any(one.cache == "hit" for one in now.own)
    mine = [one for one in now.own[1:] if one.cache != "hit"]
    known = (mine, *((*(each.compiled or ())[1:], *each.later) for each in earlier))
    counted = (
        [
            one
            for one in each
            if not (one.evaluating or (cached and one.cache == "miss"))
            and (one.category == NEW_INSTANCE) <= (now.underway.category == NEW_INSTANCE)
        ]
        for each in known
    )
    took = [seconds for each in counted for seconds in _times(now.underway, each)]
    if not took:
        return None
    so_far = now.activity_seconds
    rests: list[_Rest] = [(one - so_far, {}) for one in took if one > so_far]
    return _estimate("function", so_far, took, rests)


def _times(what: Done, compiled: Sequence[Done]) -> Iterator[float]:
    """The times of ``what`` in ``compiled``, latest first: alone, then with its backward.

    A recompile with dynamic shapes includes the backward; the first compilation of a function does
    not.
    """
    for place in reversed(range(len(compiled))):
        one = compiled[place]
        if not _is_same(what, one) or not one.seconds:
            continue
        yield one.seconds
        following = takewhile(lambda after: not _is_same(what, after), compiled[place + 1 :])
        backward = (after.seconds for after in following if _is_backward_of(one, after))
        if seconds := next(backward, None):
            yield one.seconds + seconds


def _is_backward_of(forward: Done, other: Done) -> bool:
    same = forward.code is not None and forward.code == other.code
    return same and (forward.kind, other.kind) == ("forward", "backward")


def _estimate(
    of: str, so_far: float, took: Sequence[float], rests: Sequence[_Rest], of_rank: bool = False
) -> Estimate:
    from statistics import median  # as in model.causes

    left = sorted(seconds for seconds, _ in rests)
    several = len(left) > 1
    return Estimate(
        of=of,
        so_far_seconds=so_far,
        last_seconds=took[0],
        left_seconds=median(left) if left else None,
        low=left[0] if several else None,
        high=left[-1] if several else None,
        phases=rests[0][1] if rests else {},
        precedents=len(took),
        of_rank=of_rank,
    )


def _rest(now: Now, before: EarlierWarmup) -> _Rest:
    """The time left according to ``before``, and its split by phase."""
    assert now.seconds is not None
    spent = {name: now.phase_seconds.get(name, 0.0) for name in before.phase_seconds}
    parts = {name: max(0.0, took - spent[name]) for name, took in before.phase_seconds.items()}
    left = whole = sum(parts.values())
    if now.compiled is not None and before.compiled is not None:
        speed = _speed(now.compiled, before.compiled)
        left = _of_compilations(before.compiled[len(now.compiled) :], now.activity_seconds, speed)
    share = left / whole if whole else 0.0
    phases = {name: part * share for name, part in parts.items() if part * share}
    return left + _between(now.seconds, now.phase_seconds, before), phases


def _of_compilations(rest: Sequence[Done], so_far: float, speed: float) -> float:
    """The time left for ``rest``; its first compilation has been running for ``so_far``."""
    if not rest:
        return 0.0
    current, *after = (speed * (one.seconds or 0.0) for one in rest)
    return max(0.0, current - so_far) + sum(after)


def _speed(ended: Sequence[Done], before: Sequence[Done]) -> float:
    """The slowdown against ``before``, from the compilations that have ended.

    A shared host is slower. Too few ended compilations, or blocked ones, do not count.
    """
    pairs = [(one.seconds, two.seconds) for one, two in zip(ended, before, strict=False)]
    mine = sum(one for one, two in pairs if one and two)
    theirs = sum(two for one, two in pairs if one and two)
    doubt = _DOUBT * sum(one.seconds or 0.0 for one in before)
    speed = (mine + doubt) / (theirs + doubt) if theirs else 1.0
    return min(_MOST, max(1 / _MOST, speed))


def _between(seconds: float, phase_seconds: _Parts, before: EarlierWarmup) -> float:
    """The time left without compile activity: steps, or pieces of the first one."""
    whole = max(0.0, before.seconds - sum(before.phase_seconds.values()))
    return max(0.0, whole - max(0.0, seconds - sum(phase_seconds.values())))


def _began_the_same(now: Now, before: EarlierWarmup) -> bool:
    """Whether ``before`` began with the compilations so far, including the one in progress."""
    if now.compiled is None or before.compiled is None:
        return True
    mine = now.compiled if now.underway == Done() else (*now.compiled, now.underway)
    pairs = zip(mine, before.compiled, strict=False)
    return len(mine) <= len(before.compiled) and all(_agree(*pair) for pair in pairs)


def _agree(one: Done, other: Done) -> bool:
    """Whether the compilations agree in every field that is known for both."""
    pairs = (
        (one.kind, other.kind),
        (one.name, other.name),
        (one.code, other.code),
        (one.cache, other.cache),
    )
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _is_same(one: Done, other: Done) -> bool:
    """Whether both are of the same known function."""
    known = one.name is not None and other.name is not None
    return known and _agree(one, other)


class LongestActivities:
    """Longest earlier activities of one run, from the counts of all its ranks."""

    def __init__(self, ranks: Iterable[CompileCounts]) -> None:
        pairs = sorted((one.ended, one.longest_activity_ns) for one in ranks)
        self._ended = [ended for ended, _ in pairs]
        self._longest = list(accumulate((longest for _, longest in reversed(pairs)), max))[::-1]

    def longest_ns(self, rank: CompileCounts) -> int:
        """The longest activity of the ranks that are past this one; 0 if there is none.

        A rank that compiles does not count: it has begun one more than it has ended.
        """
        if not rank.active_since_ns:
            return 0
        first = bisect_left(self._ended, rank.begun)
        return self._longest[first] if first < len(self._longest) else 0


_NOTHING = RankHistory()
_NONE: Mapping[str, RankHistory] = MappingProxyType({})


def with_estimates(
    runs: Iterable[RunView], now_ns: int, histories: Mapping[str, RankHistory] = _NONE
) -> tuple[RunView, ...]:
    """``histories``: by the folder of a rank's record."""
    return tuple(_run(run, now_ns, histories) for run in runs)


def _run(run: RunView, now_ns: int, histories: Mapping[str, RankHistory]) -> RunView:
    if not any(view.judgement.compiling for view in run.ranks):
        return run
    return run.with_ranks(_rank(view, run.ranks, now_ns, histories) for view in run.ranks)


def _rank(
    view: RankView,
    ranks: Sequence[RankView],
    now_ns: int,
    histories: Mapping[str, RankHistory],
) -> RankView:
    if not view.judgement.compiling or view.judgement.phase == "cache_load":
        return view  # loading from a cache takes a fraction of what compiling took
    known = histories.get(view.record.folder, _NOTHING).same
    peers = [] if view.record.slot.compile.warmups else list(_peers(view, ranks))
    return replace(view, estimate=estimate(now_of(view, now_ns), (*peers, *known)))


def now_of(view: RankView, now_ns: int) -> Now:
    """The input of an estimate for a rank that compiles, at ``now_ns``."""
    record, counts = view.record, view.record.slot.compile
    began_ns = counts.episode_began_ns or counts.active_since_ns
    ended_ns = max((one.at_ns for one in record.compilations), default=0)
    compiled = tuple(copied(one, Done) for one in record.compilations)
    return Now(
        seconds=None if counts.warmups else (now_ns - began_ns) / 1e9,
        activity_seconds=(now_ns - max(counts.active_since_ns, ended_ns)) / 1e9,
        phase_seconds=view.figures.compile.phase_seconds,
        compiled=compiled if len(compiled) < MOST_EVENTS else None,
        underway=_underway(view),
        own=compiled,
        evaluating=counts.evaluating_since_ns != 0,
    )


def _underway(view: RankView) -> Done:
    what, began = view.figures.log.underway, view.record.beginning
    if what is None:
        return Done()
    if what.backward:
        return Done(kind="backward")
    since = began is not None and began.at_ns >= view.record.slot.compile.active_since_ns
    code = began.code if began is not None and since and began.name == what.name else None
    return Done(kind=what.kind, name=what.name, code=code, category=what.category)


def _peers(view: RankView, ranks: Iterable[RankView]) -> Iterable[EarlierWarmup]:
    """The first warm-ups of the ranks that have completed the activity of ``view``."""
    begun = view.record.slot.compile.begun
    for other in ranks:
        counts = other.record.slot.compile
        if not counts.active_since_ns and counts.ended >= begun and counts.warmups < 2:
            yield _warmup_of(other, counts)


def _warmup_of(view: RankView, counts: CompileCounts) -> EarlierWarmup:
    known = len(view.record.compilations) < MOST_EVENTS
    return EarlierWarmup(
        seconds=(counts.last_end_ns - counts.first_begin_ns) / 1e9,
        phase_seconds=view.figures.compile.phase_seconds,
        compiled=tuple(copied(one, Done) for one in view.record.compilations) if known else None,
        of_rank=True,
    )
