"""Estimates how long the current compilation still takes, from earlier runs and other ranks.

Several earlier times must agree on the time left, and with the speed so far; otherwise there is no
estimate. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from warmwatch.shared.record import CompileCounts
from warmwatch_monitor.figures.compile import Estimate
from warmwatch_monitor.figures.units import copied
from warmwatch_monitor.model import RankHistory, RankView, RunView
from warmwatch_monitor.model.figures import Done, EarlierWarmup
from warmwatch_monitor.sources.records.journal_sums import MOST_EVENTS

_DOUBT = 0.05  # of the whole: the least that must have ended to compare this host's speed
_LEAST = 3  # earlier times: one or two may be of a busier host, or of other arguments
_AGREE = 1.25  # times as long: the most by which they may differ
_Parts = Mapping[str, float]
_Rest = tuple[float, _Parts]  # seconds, and of them those of each phase


class Now(Struct, frozen=True, kw_only=True):
    """A rank in its first warm-up that compiles.

    Attributes:
        seconds: of the warm-up so far, by the clock.
        activity_seconds: of the compilation in progress. phase_seconds: of all compile time so far.
        compiled: what has ended, in order; ``None`` where not all of it is known.
        underway: what is compiled now, as far as that is known.
    """

    seconds: float
    activity_seconds: float
    phase_seconds: _Parts = field(default_factory=dict)
    compiled: tuple[Done, ...] | None = None
    underway: Done = Done()


def estimate(now: Now, earlier: Sequence[EarlierWarmup]) -> Estimate | None:
    """The estimate from ``earlier`` warm-ups, latest first; ``None`` if they do not predict it.

    Beyond all earlier runs it has no time left, whatever they compiled: so that stays true. Other
    of the run compiled the same under the same load, so they take precedence over earlier runs.
    Earlier runs with more compilations than those ranks have by now still count.
    """
    peers = [warmup for warmup in earlier if warmup.of_rank]
    fitting = [warmup for warmup in earlier if _began_the_same(now, warmup)]
    warmups = [warmup for warmup in fitting if warmup.of_rank is bool(peers)]
    if further := _further(fitting):
        warmups, peers = further, []
    took, rests = [warmup.seconds for warmup in warmups], [_rest(now, warmup) for warmup in warmups]
    return _estimate(now.seconds, took, rests, of_rank=bool(peers)) or _beyond(now, earlier)


def _beyond(now: Now, earlier: Sequence[EarlierWarmup]) -> Estimate | None:
    """That it takes longer than all earlier runs did, or without any the other ranks."""
    runs = [warmup for warmup in earlier if not warmup.of_rank]
    took = [run.seconds for run in runs or earlier]
    if not took or now.seconds < max(took):
        return None
    return Estimate(
        of="warmup",
        so_far_seconds=now.seconds,
        last_seconds=took[0],
        precedents=len(took),
        of_rank=not runs,
    )


def _further(fitting: Sequence[EarlierWarmup]) -> list[EarlierWarmup]:
    """Earlier runs with more compilations than the other ranks have by now, if those are known."""
    done = [
        len(warmup.compiled) for warmup in fitting if warmup.of_rank and warmup.compiled is not None
    ]
    before = [warmup for warmup in fitting if not warmup.of_rank and warmup.compiled is not None]
    return [warmup for warmup in before if done and len(warmup.compiled or ()) > max(done)]


def _estimate(
    so_far: float,
    took: Sequence[float],
    rests: Sequence[_Rest | None],
    of_rank: bool = False,
) -> Estimate | None:
    """``None`` if too few of ``rests`` are known, or they differ."""
    from statistics import median  # as in model.causes

    pairs = [rest for rest in rests if rest is not None]
    left = sorted(seconds for seconds, _ in pairs)
    if len(left) < max(_LEAST, len(took)) or left[-1] > _AGREE * left[0]:
        return None
    return Estimate(
        of="warmup",
        so_far_seconds=so_far,
        last_seconds=took[0],
        left_seconds=median(left),
        low=left[0],
        high=left[-1],
        phases=pairs[0][1],
        precedents=len(took),
        of_rank=of_rank,
    )


def _rest(now: Now, before: EarlierWarmup) -> _Rest | None:
    """The time left according to ``before``, and its split by phase; ``None`` if it differs."""
    if now.seconds >= before.seconds:
        return None
    spent = {name: now.phase_seconds.get(name, 0.0) for name in before.phase_seconds}
    parts = {name: max(0.0, took - spent[name]) for name, took in before.phase_seconds.items()}
    left = whole = sum(parts.values())
    if now.compiled is not None and before.compiled is not None:
        speed = _speed(now.compiled, before.compiled)
        rest = [speed * (done.seconds or 0.0) for done in before.compiled[len(now.compiled) :]]
        if not 1 / _AGREE <= speed <= _AGREE or (rest and now.activity_seconds > rest[0]):
            return None
        left = sum(rest) - (now.activity_seconds if rest else 0.0)
    share = left / whole if whole else 0.0
    phases = {name: part * share for name, part in parts.items() if part * share}
    return left + _between(now.seconds, now.phase_seconds, before), phases


def _speed(ended: Sequence[Done], before: Sequence[Done]) -> float:
    """The slowdown against ``before``, from the compilations that have ended.

    A shared host is slower. Too few ended compilations do not count.
    """
    pairs = [(done.seconds, two.seconds) for done, two in zip(ended, before, strict=False)]
    mine = sum(value for value, two in pairs if value and two)
    theirs = sum(two for value, two in pairs if value and two)
    doubt = _DOUBT * sum(done.seconds or 0.0 for done in before)
    return (mine + doubt) / (theirs + doubt) if theirs else 1.0


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


def _agree(done: Done, other: Done) -> bool:
    """Whether the compilations agree in every field that is known for both."""
    pairs = (
        (done.kind, other.kind),
        (done.name, other.name),
        (done.code, other.code),
        (done.cache, other.cache),
    )
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


class LongestActivities:
    """Longest earlier activities of one run, from the counts of all its ranks."""

    def __init__(self, ranks: Iterable[CompileCounts]) -> None:
        pairs = sorted((rank.ended, rank.longest_activity_ns) for rank in ranks)
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
    if (
        not view.judgement.compiling
        or view.record.slot.compile.warmups  # no recompile takes as long as an earlier one
        or view.judgement.phase == "cache_load"  # takes a fraction of what compiling took
    ):
        return view
    warmups, peers = histories.get(view.record.folder, _NOTHING).same, _peers(view, ranks)
    return replace(view, estimate=estimate(now_of(view, now_ns), (*peers, *warmups)))


def now_of(view: RankView, now_ns: int) -> Now:
    """The input of an estimate for a rank that compiles, at ``now_ns``."""
    record, counts = view.record, view.record.slot.compile
    began_ns = counts.episode_began_ns or counts.active_since_ns
    ended_ns = max((compilation.at_ns for compilation in record.compilations), default=0)
    compiled = tuple(copied(compilation, Done) for compilation in record.compilations)
    return Now(
        seconds=(now_ns - began_ns) / 1e9,
        activity_seconds=(now_ns - max(counts.active_since_ns, ended_ns)) / 1e9,
        phase_seconds=view.figures.compile.phase_seconds,
        compiled=compiled if len(compiled) < MOST_EVENTS else None,
        underway=_underway(view),
    )


def _underway(view: RankView) -> Done:
    what, began = view.figures.log.underway, view.record.beginning
    if what is None:
        return Done()
    if what.backward:
        return Done(kind="backward")
    since = began is not None and began.at_ns >= view.record.slot.compile.active_since_ns
    code = began.code if began is not None and since and began.name == what.name else None
    return Done(kind=what.kind, name=what.name, code=code)


def _peers(view: RankView, ranks: Iterable[RankView]) -> Iterable[EarlierWarmup]:
    """The first warm-ups of the ranks that have completed the activity of ``view``."""
    begun = view.record.slot.compile.begun
    for other in ranks:
        counts = other.record.slot.compile
        if not counts.active_since_ns and counts.ended >= begun and counts.warmups < 2:
            yield _warmup_of(other, counts)


def _warmup_of(view: RankView, counts: CompileCounts) -> EarlierWarmup:
    is_known = len(view.record.compilations) < MOST_EVENTS
    return EarlierWarmup(
        seconds=(counts.last_end_ns - counts.first_begin_ns) / 1e9,
        phase_seconds=view.figures.compile.phase_seconds,
        compiled=tuple(copied(compilation, Done) for compilation in view.record.compilations)
        if is_known
        else None,
        of_rank=True,
    )
