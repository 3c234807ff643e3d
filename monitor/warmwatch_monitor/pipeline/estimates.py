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
from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.model.figures import Done, EarlierWarmup, RankHistory, median
from warmwatch_monitor.model.snapshot import RankView, RunView
from warmwatch_monitor.sources.records.journal_sums import MOST_EVENTS

_DOUBT = 0.05  # of the whole: the least that must have ended to compare this host's speed
_LEAST = 3  # earlier times: one or two may be of a busier host, or of other arguments
_AGREE = 1.25  # times as long: the most by which they may differ
_PhaseSeconds = Mapping[str, float]
_Rest = tuple[float, _PhaseSeconds]  # seconds, and of them those of each phase


class Now(Struct, frozen=True, kw_only=True):
    """A rank in its first warm-up that compiles."""

    seconds: float  # of the warm-up so far, by the clock
    activity_seconds: float  # of the compilation in progress
    phase_seconds: _PhaseSeconds = field(default_factory=dict)  # of all compile time so far
    compiled: tuple[Done, ...] | None = None  # in order; ``None`` where not all of it is known
    underway: Done = Done()  # what is compiled now, as far as that is known


def estimate(now: Now, earlier: Sequence[EarlierWarmup]) -> Estimate | None:
    """The estimate from ``earlier`` warm-ups, latest first; ``None`` if they do not predict it.

    Beyond all earlier runs it has no time left, whatever they compiled: so that stays true. Other
    ranks of the run compiled the same under the same load, so they take precedence over earlier
    runs. Earlier runs with more compilations than those ranks have by now still count. What was
    loaded from a cache takes a fraction: it never predicts what is compiled.
    """
    use = _cache_use((*(now.compiled or ()), now.underway))
    earlier = [
        warmup for warmup in earlier if {use, _cache_use(warmup.compiled or ())} != {"hit", "miss"}
    ]
    fitting = [warmup for warmup in earlier if _began_the_same(now, warmup)]
    of_rank = any(warmup.of_rank for warmup in earlier)
    warmups = [warmup for warmup in fitting if warmup.of_rank is of_rank]
    if further := _further(fitting):
        warmups, of_rank = further, False
    return _estimate(now, warmups, of_rank=of_rank) or _beyond(now, earlier)


def _cache_use(compiled: Iterable[Done]) -> str | None:
    """What the first lookup found; ``None`` if that is unknown."""
    return next((done.cache for done in compiled if done.cache), None)


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
    counts = [
        len(warmup.compiled) for warmup in fitting if warmup.of_rank and warmup.compiled is not None
    ]
    runs = [warmup for warmup in fitting if not warmup.of_rank and warmup.compiled is not None]
    return [warmup for warmup in runs if counts and len(warmup.compiled or ()) > max(counts)]


def _estimate(now: Now, warmups: Sequence[EarlierWarmup], *, of_rank: bool) -> Estimate | None:
    """``None`` if too few of ``warmups`` predict the time left, or they differ."""
    rests = [rest for warmup in warmups if (rest := _rest(now, warmup)) is not None]
    left = sorted(seconds for seconds, _ in rests)
    if len(left) < max(_LEAST, len(warmups)) or left[-1] > _AGREE * left[0]:
        return None
    return Estimate(
        of="warmup",
        so_far_seconds=now.seconds,
        last_seconds=warmups[0].seconds,
        left_seconds=median(left),
        low=left[0],
        high=left[-1],
        phases=rests[0][1],
        precedents=len(warmups),
        of_rank=of_rank,
    )


def _rest(now: Now, before: EarlierWarmup) -> _Rest | None:
    """The time left according to ``before``, and its split by phase; ``None`` if it differs."""
    if now.seconds >= before.seconds:
        return None
    parts = {
        phase: max(0.0, took - now.phase_seconds.get(phase, 0.0))
        for phase, took in before.phase_seconds.items()
    }
    left = whole = sum(parts.values())
    if now.compiled is not None and before.compiled is not None:
        slowdown = _slowdown(now.compiled, before.compiled)
        rest = [slowdown * (done.seconds or 0.0) for done in before.compiled[len(now.compiled) :]]
        if not 1 / _AGREE <= slowdown <= _AGREE or (rest and now.activity_seconds > rest[0]):
            return None
        left = sum(rest) - (now.activity_seconds if rest else 0.0)
    share = left / whole if whole else 0.0
    phases = {phase: part * share for phase, part in parts.items() if part * share}
    return left + _between(now, before), phases


def _slowdown(ended: Sequence[Done], before: Sequence[Done]) -> float:
    """How much longer the compilations that have ended took than in ``before``.

    A shared host is slower. Too few ended compilations do not count.
    """
    both = [
        (done.seconds, earlier.seconds)
        for done, earlier in zip(ended, before, strict=False)
        if done.seconds and earlier.seconds
    ]
    took, took_before = sum(now for now, _ in both), sum(then for _, then in both)
    doubt = _DOUBT * sum(done.seconds or 0.0 for done in before)
    return (took + doubt) / (took_before + doubt) if took_before else 1.0


def _between(now: Now, before: EarlierWarmup) -> float:
    """The time left without compile activity: steps, or pieces of the first one."""
    whole = max(0.0, before.seconds - sum(before.phase_seconds.values()))
    return max(0.0, whole - max(0.0, now.seconds - sum(now.phase_seconds.values())))


def _began_the_same(now: Now, before: EarlierWarmup) -> bool:
    """Whether ``before`` began with the compilations so far, including the one in progress."""
    if now.compiled is None or before.compiled is None:
        return True
    begun = now.compiled if now.underway == Done() else (*now.compiled, now.underway)
    if len(begun) > len(before.compiled):
        return False
    return all(_agree(*pair) for pair in zip(begun, before.compiled, strict=False))


_COMPARED = ("kind", "name", "code", "cache")


def _agree(done: Done, other: Done) -> bool:
    """Whether the compilations agree in every field that is known for both."""
    values = ((getattr(done, name), getattr(other, name)) for name in _COMPARED)
    return all(None in pair or pair[0] == pair[1] for pair in values)


class LongestActivities:
    """Longest earlier activities of one run, from the counts of all its ranks."""

    def __init__(self, ranks: Iterable[CompileCounts]) -> None:
        ordered = sorted((rank.ended, rank.longest_activity_ns) for rank in ranks)
        self._ended = [ended for ended, _ in ordered]
        # of each of these ranks and all after it
        self._longest = list(accumulate((longest for _, longest in reversed(ordered)), max))[::-1]

    def longest_ns(self, rank: CompileCounts) -> int:
        """The longest activity of the ranks that are past this one; 0 if there is none.

        A rank that compiles does not count: it has begun one more than it has ended.
        """
        if not rank.active_since_ns:
            return 0
        first = bisect_left(self._ended, rank.begun)
        return self._longest[first] if first < len(self._longest) else 0


_NO_HISTORY = RankHistory()
_NO_HISTORIES: Mapping[str, RankHistory] = MappingProxyType({})


def with_estimates(
    runs: Iterable[RunView], now_ns: int, histories: Mapping[str, RankHistory] = _NO_HISTORIES
) -> tuple[RunView, ...]:
    """``runs`` with the estimates of ranks that compile; ``histories``: by record."""
    return tuple(
        run.with_ranks(_with_estimate(view, run.ranks, now_ns, histories) for view in run.ranks)
        for run in runs
    )


def _with_estimate(
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
    now, warmups = now_of(view, now_ns), histories.get(view.record.folder, _NO_HISTORY).same
    if _may_be_cached(view, now):
        return view
    return replace(view, estimate=estimate(now, (*_peers(view, ranks), *warmups)))


def _may_be_cached(view: RankView, now: Now) -> bool:
    """Whether the cache may have this run's graphs, or only those of another program.

    What is in its directory does not tell; the first lookup does.
    """
    warm = view.record.slot.identity.caches.get("inductor") == "warm"
    return warm and _cache_use((*(now.compiled or ()), now.underway)) is None


def now_of(view: RankView, now_ns: int) -> Now:
    """The input of an estimate for a rank that compiles, at ``now_ns``."""
    record, counts = view.record, view.record.slot.compile
    began_ns = counts.episode_began_ns or counts.active_since_ns
    ended_ns = max((compilation.at_ns for compilation in record.compilations), default=0)
    return Now(
        seconds=(now_ns - began_ns) / 1e9,
        activity_seconds=(now_ns - max(counts.active_since_ns, ended_ns)) / 1e9,
        phase_seconds=view.figures.compile.phase_seconds,
        compiled=_compiled(view),
        underway=_underway(view),
    )


def _compiled(view: RankView) -> tuple[Done, ...] | None:
    """``None`` where a full list may lack the first ones."""
    if len(view.record.compilations) >= MOST_EVENTS:
        return None
    return tuple(copied(compilation, Done) for compilation in view.record.compilations)


def _underway(view: RankView) -> Done:
    underway, beginning = view.figures.log.underway, view.record.beginning
    lookup = view.record.lookup
    if underway is None:
        return Done(cache=lookup)
    if underway.backward:
        return Done(kind="backward", cache=lookup)
    began_now = (
        beginning is not None
        and beginning.at_ns >= view.record.slot.compile.active_since_ns
        and beginning.name == underway.name
    )
    code = beginning.code if beginning is not None and began_now else None
    return Done(kind=underway.kind, name=underway.name, code=code, cache=lookup)


def _peers(view: RankView, ranks: Iterable[RankView]) -> Iterable[EarlierWarmup]:
    """The first warm-ups of the ranks that have completed the activity of ``view``."""
    begun = view.record.slot.compile.begun
    for other in ranks:
        counts = other.record.slot.compile
        if not counts.active_since_ns and counts.ended >= begun and counts.warmups < 2:
            yield EarlierWarmup(
                seconds=(counts.last_end_ns - counts.first_begin_ns) / 1e9,
                phase_seconds=other.figures.compile.phase_seconds,
                compiled=_compiled(other),
                of_rank=True,
            )
