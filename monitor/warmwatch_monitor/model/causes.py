"""Why steps are slow: what differs from before, and from the other ranks of the run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.phrases import counted
from warmwatch.shared.record import Slot
from warmwatch_monitor.figures.machine import Host
from warmwatch_monitor.figures.rank import Spread, spread_of
from warmwatch_monitor.model.figures import median
from warmwatch_monitor.model.machine import HARMLESS, GpuReading
from warmwatch_monitor.model.snapshot import RankView

# Times the load or the step length; shares of the time, the clock or the limit.
_LOADED, _SLOW, _WAITING, _SAVING, _STOLEN, _CLOCKED, _CAPPED = 1.2, 1.1, 0.2, 0.2, 0.1, 0.9, 0.95
_WAITS_MORE = 0.1  # share of the time beyond the share in the other ranks, for batches or a CPU
_RETRY_EVERY_NS = 10 * 10**9  # a retry takes 10 ms to 1 s: fewer cannot slow each step
# So few steps apart, or so little time, ranks wait for each other: none of them is slower. Their
# records are read one after the other.
_LOCKSTEP, _LOCKSTEP_SECONDS = 2, 0.5


class Surroundings(Struct, frozen=True, kw_only=True):
    """What may explain a speed, at one moment; ``None`` is "not known".

    Attributes:
        at_ns: the last step. attached_ns: when the agent attached. load, cpus: of the host.
        stolen: CPU seconds that the hypervisor gave to other machines, so far. wait_ns: time spent
        waiting for batches. saving_ns: time in which other threads saved. tokens: tokens per step.
        fallbacks, breaks, retries (of CUDA's allocator): so far. clock_hertz: of the slowest GPU's
        SMs. limit_watts: the lowest power limit of its GPUs. throttled: reasons of any of its GPUs.
        others: processes on its GPUs.
    """

    at_ns: int
    attached_ns: int
    load: float | None = None
    cpus: int | None = None
    stolen: float | None = None
    wait_ns: int = 0
    saving_ns: int = 0
    tokens: int = 0
    fallbacks: int = 0
    breaks: int = 0
    retries: int | None = None
    clock_hertz: float | None = None
    limit_watts: float | None = None
    throttled: tuple[str, ...] | None = None
    others: int | None = None


def surroundings_of(slot: Slot, gpus: Sequence[GpuReading], host: Host | None) -> Surroundings:
    """The surroundings of a rank now."""
    steps, counts = slot.steps, slot.compile
    since = counts.background_saving_since_ns
    return Surroundings(
        at_ns=steps.last_step_ns,
        attached_ns=slot.header.attached_ns,
        load=host.load_1m if host else None,
        cpus=host.cpus if host else None,
        stolen=host.stolen_seconds if host else None,
        wait_ns=steps.batch_wait_ns,
        saving_ns=counts.background_saving_ns
        + (max(0, steps.last_step_ns - since) if since else 0),
        tokens=counts.tokens_per_step,
        fallbacks=counts.fallbacks,
        breaks=counts.graph_breaks,
        retries=counts.allocator_retries - 1 if counts.allocator_retries else None,
        clock_hertz=_clock_hertz(gpus),
        limit_watts=_limit_watts(gpus),
        throttled=tuple(sorted(_throttled(gpus))) if gpus else None,
        others=_processes(gpus),
    )


def causes_since(before: Surroundings, now: Surroundings) -> Iterator[str]:
    """Differences that make steps longer, most certain first; empty if none is known."""
    changes = list(_changed(before, now))
    yield from changes
    if before.load is not None and now.load and now.cpus and now.load > _LOADED * now.cpus:
        if now.load > _LOADED * before.load:
            yield f"load {now.load:.1f} on {now.cpus} CPUs"
        elif not changes and now.load >= before.load:  # shares of the CPUs may have changed
            yield f"load {now.load:.1f} on {now.cpus} CPUs ({before.load:.1f} before)"


def _changed(before: Surroundings, now: Surroundings) -> Iterator[str]:
    yield from _changed_in_program(before, now)
    if now.others is not None and before.others is not None and now.others > before.others:
        yield "another process on the GPU"
    if before.limit_watts and now.limit_watts and now.limit_watts < _CAPPED * before.limit_watts:
        yield f"GPU power limit at {now.limit_watts:.0f} W ({before.limit_watts:.0f} before)"
    if before.clock_hertz and now.clock_hertz and now.clock_hertz < _CLOCKED * before.clock_hertz:
        clocks = f"{now.clock_hertz / 1e6:.0f} MHz ({before.clock_hertz / 1e6:.0f} before)"
        yield f"GPU clock at {clocks}"
    stolen = _stolen(before, now)
    if stolen > _STOLEN:
        yield f"the hypervisor takes {100 * stolen:.0f} % of the CPU time (steal)"
    more = set(now.throttled or ()).difference(before.throttled or ())
    if more and before.throttled is not None:
        yield f"GPU throttled ({', '.join(sorted(more))})"


def _changed_in_program(before: Surroundings, now: Surroundings) -> Iterator[str]:
    """Changes in the program's own behaviour."""
    if now.fallbacks > before.fallbacks:
        more = counted(now.fallbacks - before.fallbacks, "more function")
        yield f"calls of {more} run eagerly"
    if now.breaks > before.breaks:
        yield counted(now.breaks - before.breaks, "more graph break")
    if before.tokens and now.tokens > before.tokens:
        yield f"tokens a step went from {before.tokens} to {now.tokens}"
    retries = (now.retries or 0) - (before.retries or 0) if before.retries is not None else 0
    if retries * _RETRY_EVERY_NS > now.at_ns - before.at_ns:
        yield f"GPU memory is full ({retries} allocator retries)"
    waiting = _new_share(before.wait_ns, now.wait_ns, before, now)
    if waiting > _WAITING:
        yield f"{100 * waiting:.0f} % of the time is waiting for data"
    saving = _new_share(before.saving_ns, now.saving_ns, before, now)
    if saving > _SAVING:
        yield f"a background save takes {100 * saving:.0f} % of the time"


def _stolen(before: Surroundings, now: Surroundings) -> float:
    """The share of the CPUs' time since then that went to other machines; 0 if not known."""
    if before.stolen is None or now.stolen is None or not now.cpus:
        return 0.0
    return (now.stolen - before.stolen) * 1e9 / (now.cpus * max(1, now.at_ns - before.at_ns))


def _new_share(before_ns: int, now_ns: int, before: Surroundings, now: Surroundings) -> float:
    """The share of the time since ``before``; 0 if it is less than twice that until then."""
    share = (now_ns - before_ns) / max(1, now.at_ns - before.at_ns)
    usual = before_ns / max(1, before.at_ns - before.attached_ns)
    return share if share > 2 * usual else 0.0


def spread(ranks: Iterable[RankView], read: Callable[[RankView], float | None]) -> Spread | None:
    """The spread of ``read`` over ``ranks``; ``None`` if fewer than two ranks have a value."""
    return spread_of({view.rank: read(view) for view in ranks})


class SlowRank(Struct, frozen=True):
    """A rank whose steps are longer than those of the others.

    Attributes:
        ratio: of its step to the median of the others. causes: as of :func:`causes_among`.
    """

    rank: int
    ratio: float
    causes: tuple[str, ...]


def slow_rank(ranks: Sequence[RankView]) -> SlowRank | None:
    """The rank with the longest recent step, if that is clearly longer than the others'.

    Ranks in lockstep are not compared: a difference is that of their step marks. The one that the
    others wait for is found by :func:`with_laggard`. Nor are ranks whose speed changes: one of them
    shows it before another.
    """
    pairs = [(length, view) for view in ranks if (length := view.figures.steps.length)]
    if len(pairs) < 2 or len(pairs) < len(ranks):
        return None
    if any(view.figures.steps.trend for view in ranks):
        return None
    longest, slow = max(pairs, key=lambda pair: pair[0])
    others = [(length, view) for length, view in pairs if view is not slow]
    ratio = longest / median(length for length, _ in others)
    apart = median(view.figures.steps.count for _, view in others) - slow.figures.steps.count
    if ratio < _SLOW or abs(apart) <= max(_LOCKSTEP, _LOCKSTEP_SECONDS / longest):
        return None
    return SlowRank(slow.rank, ratio, tuple(causes_among(slow, [view for _, view in others])))


def with_laggard(ranks: Sequence[RankView]) -> tuple[RankView, ...]:
    """``ranks``, with the one that all others wait for in collectives named, if there is one."""
    living = [rank for rank in ranks if rank.living]
    others = [rank for rank in living if not _waits(rank)]
    if len(others) != 1 or len(living) < 2:
        return tuple(ranks)
    (last,) = others
    why = f", which {last.limited_by.subject} limits" if last.limited_by else ""
    differs = tuple(causes_among(last, [rank for rank in living if rank is not last]))
    waits = f"waits for rank {last.rank}{why}"
    more = len(living) - 1
    waiting = "other rank waits" if more == 1 else f"other {more} ranks wait"
    holds = f"the {waiting} for rank {last.rank}"

    def named(view: RankView) -> RankView:
        limit = view.limited_by
        if limit is None or not view.living:
            return view
        parts = (*limit.evidence, holds) if view is last else (waits, *limit.evidence)
        return replace(view, limited_by=replace(limit, evidence=(*parts, *differs)))

    return tuple(map(named, ranks))


def _waits(view: RankView) -> bool:
    """Whether it waits in collectives most of the time."""
    return view.limited_by is not None and view.limited_by.verdict == "communication"


def causes_among(slow: RankView, others: Sequence[RankView]) -> Iterator[str]:
    """Why ``slow`` may be slower than ``others``: differences of GPUs, input and CPUs."""
    whose = f"of rank {slow.rank}"
    own_gpus, other_gpus = slow.gpus, [view.gpus for view in others]
    for read, least, size, unit, what in (
        (_clock_hertz, _CLOCKED, 1e6, "MHz", "GPU clock"),
        (_limit_watts, _CAPPED, 1.0, "W", "GPU power limit"),
    ):
        own, usual = read(own_gpus), _median(map(read, other_gpus))
        if own and usual and own < least * usual:
            yield f"{what} {whose} {own / size:.0f} {unit} ({usual / size:.0f} in others)"
    reasons = _throttled(own_gpus).difference(HARMLESS, *map(_throttled, other_gpus))
    if reasons:
        yield f"GPU {whose} throttled ({', '.join(sorted(reasons))})"
    own, usual = _processes(own_gpus), _median(map(_processes, other_gpus))
    if own is not None and usual is not None and own > usual:
        yield f"another process on the GPU {whose}"
    is_limit = slow.limited_by is not None and slow.limited_by.verdict == "input"
    for read_share, what, is_said in (
        (_waiting, "batches", is_limit),  # the limit has the share of the last seconds
        (_queued, "a CPU", False),
    ):
        own, usual = read_share(slow), _median(map(read_share, others))
        if not is_said and own is not None and usual is not None and own > usual + _WAITS_MORE:
            share = f"{100 * own:.0f} % of its time (others {100 * usual:.0f} %)"
            yield f"rank {slow.rank} has waited for {what} {share}"


def _median(values: Iterable[float | None]) -> float | None:
    """``None`` if any value is unknown."""
    numbers = list(values)
    return (
        median(number for number in numbers if number is not None)
        if numbers and None not in numbers
        else None
    )


def _queued(view: RankView) -> float | None:
    """The share of the time in which its main thread could run and had no CPU."""
    return view.process.queued_ratio if view.process else None


def _waiting(view: RankView) -> float | None:
    """The share of its time in which it waited for batches, since it attached.

    That includes the wait for the first batch. Compiling is no share of the time.
    """
    steps, attached = view.figures.steps, view.figures.who.attached_at
    if steps.batch_wait_seconds is None or attached is None or steps.last_at is None:
        return None
    took = steps.last_at - attached - view.figures.compile.seconds
    return min(1.0, steps.batch_wait_seconds / took) if took > 0 else None


def _clock_hertz(gpus: Sequence[GpuReading]) -> float | None:
    """The SM clock of the slowest GPU."""
    values = [hertz for gpu in gpus if (hertz := dict(gpu.clocks_hertz).get("sm"))]
    return min(values, default=None)


def _limit_watts(gpus: Sequence[GpuReading]) -> float | None:
    """The lowest power limit."""
    return min((gpu.power_limit_watts for gpu in gpus if gpu.power_limit_watts), default=None)


def _throttled(gpus: Sequence[GpuReading]) -> set[str]:
    """The throttle reasons of any GPU, harmless ones included."""
    return {name for gpu in gpus for name, holds in gpu.throttled if holds}


def _processes(gpus: Sequence[GpuReading]) -> int | None:
    """The number of processes on the GPU with the most."""
    numbers = [len(gpu.processes) for gpu in gpus if gpu.processes is not None]
    return max(numbers, default=None)
