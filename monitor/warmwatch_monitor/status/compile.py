"""A rank's compiler in the ``/status`` document: activity, compilations, functions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import convert

from warmwatch.shared.advice import advice
from warmwatch.shared.reasons import plain
from warmwatch_monitor.model import (
    CACHES,
    Compilation,
    Compile,
    FunctionCost,
    OpenActivity,
    RankView,
    Underway,
    VaryingDim,
    families,
)
from warmwatch_monitor.output.wording import place
from warmwatch_monitor.status.schema import compile as schema
from warmwatch_monitor.status.words.requested import remedy, since_seconds

MOST = 10


def functions(costs: Sequence[FunctionCost] | None) -> list[schema.Function] | None:
    """The most expensive functions, at most MOST; ``None``: not known."""
    return None if costs is None else [_function(one) for one in costs[:MOST]]


def _function(one: FunctionCost) -> schema.Function:
    cost = one.cost
    return schema.Function(
        called=called(one.name, one.file, one.line),
        name=one.name,
        file=one.file,
        line=one.line,
        caller=one.caller,
        others=one.others,
        compilations=one.compilations,
        failures=one.failures,
        seconds=one.seconds,
        phase_seconds=dict(cost.phase_seconds),
        ops=cost.ops,
        cache_hits=one.cache_hits,
        cache_misses=one.cache_misses,
        guards=cost.guards,
        guard_seconds=cost.guard_seconds,
        kernels=cost.kernels,
        slowest_kernels=[schema.Kernel(name=name, seconds=took) for name, took in cost.slowest],
        allocated_bytes=cost.allocated,
        reserved_bytes=cost.reserved,
    )


def called(name: str | None, file: str | None, line: int | None) -> str | None:
    """The function's label in sentences; ``None`` if not known."""
    return place(name, file, line).replace("`", "") or None


LAST = 5
BREAKS = 20
VARYING = 20
_FX = "inductor_fx"


def compiler(view: RankView) -> schema.Compile:
    """The key ``compile``: the compiler's past and current activity."""
    compile = view.figures.compile
    hits, misses, caches = _caches(compile)
    return schema.Compile(
        phase=view.judgement.phase,
        seconds=compile.seconds,
        limit_seconds=view.figures.progress.compile_limit_seconds,
        idle_seconds=view.idle_seconds if view.judgement.compiling else None,
        gpu_seconds=view.compile_gpu_seconds,
        phase_seconds={name: spent for name, spent in compile.phase_seconds.items() if spent},
        compilations=compile.graphs_compiled,
        graphs=compile.graphs,
        graphs_before=compile.graphs_before,
        precompiled=None if compile.precompiled is None else list(compile.precompiled),
        recompiles=compile.recompiles_total,
        new_instances=compile.new_instances,
        recompiles_after_warm=compile.recompiles_after_warm,
        graph_breaks=compile.graph_breaks,
        cache_hits=hits,
        cache_misses=misses,
        caches=caches,
        failures=compile.failures,
        fallbacks=compile.fallbacks,
        wrappers=compile.wrappers,
        disabled=compile.disabled,
        disabled_since_step=compile.disabled_since_step,
        eager_calls=compile.eager_calls,
        refused_calls=compile.refused_calls,
        uncompiled_evaluations=compile.uncompiled_evaluations,
        cudagraph_skips=compile.cudagraph_skips,
        background_since=compile.background_since,
        background_seconds=compile.background_seconds,
        progress=progress(compile.open),
        estimate=_estimate(view),
        underway=underway(view.figures.log.underway, after_warm=bool(view.figures.warmups.count)),
        functions=functions(view.figures.log.functions),
        last=_last(view.figures.log.compilations),
        breaks=[
            schema.Break(
                reason=one.reason, count=one.count, called=called(one.name, one.file, one.line)
            )
            for one in view.figures.log.breaks[:BREAKS]
        ],
        varying=[_varying(one) for one in view.figures.log.varying[:VARYING]],
    )


def progress(activity: OpenActivity | None) -> schema.Counted | None:
    """Progress of the current activity, if PyTorch counts its items."""
    counted = activity.counted if activity else None
    return None if counted is None else convert(counted, schema.Counted, from_attributes=True)


def _estimate(view: RankView) -> schema.Estimate | None:
    """The time left for the current compilation; ``None`` without a comparable one."""
    known = view.estimate
    if known is None or not view.judgement.compiling:
        return None
    return schema.Estimate(
        of=known.of,
        so_far_seconds=known.so_far_seconds,
        last_seconds=known.last_seconds,
        left_seconds=known.left_seconds,
        low=known.low,
        high=known.high,
        phases=dict(known.phases),
        precedents=known.precedents,
        of_rank=known.of_rank,
    )


def _caches(compile: Compile) -> tuple[int | None, int | None, dict[str, schema.CacheUse] | None]:
    """Hits and misses of the cache of whole graphs, and of each cache."""
    hits, misses = compile.cache_hits, compile.cache_misses
    if hits is None or misses is None:
        return None, None, None
    by_name = {name: schema.CacheUse(hits=hits[name], misses=misses[name]) for name in CACHES}
    return hits[_FX], misses[_FX], by_name


def _last(known: Sequence[Compilation]) -> list[schema.PastCompilation]:
    """The last compilations, each with the total cost of its family, as far as recorded."""
    totals: dict[int, float] = {}
    for family in families(known):
        seconds = [took for at in family if (took := known[at].seconds) is not None]
        if seconds:
            totals[family[0]] = sum(seconds)
    first = max(0, len(known) - LAST)
    return [compilation(known[at], totals.get(at)) for at in range(first, len(known))]


def compilation(one: Compilation, total: float | None = None) -> schema.PastCompilation:
    """One compilation as JSON."""
    return schema.PastCompilation(
        id=one.id,
        kind=one.kind,
        seconds=one.seconds,
        total_seconds=total,
        reason=one.reason,
        plain=plain(one.reason, one.category),
        category=one.category,
        advice=advice(one.category, one.kind, one.reason, dynamic=one.dynamic)
        if one.after_warm
        else None,
        called=called(one.name, one.file, one.line),
        name=one.name,
        file=one.file,
        line=one.line,
        caller=one.caller,
        cache=one.cache,
        failure=one.failure,
        failure_reason=one.failure_reason,
        instance=one.instance,
        cudagraph_skip=one.cudagraph_skip,
    )


def _varying(one: VaryingDim) -> schema.Varying:
    return schema.Varying(
        tensor=one.tensor,
        dim=one.dim,
        values=list(one.values),
        complete=one.complete,
        smallest=one.lowest,
        largest=one.highest,
        count=one.count,
        seconds=one.seconds,
        step_seconds_before=one.before_seconds,
        step_seconds_since=since_seconds(one),
        words=remedy(one),
        name=one.name,
        file=one.file,
        line=one.line,
    )


def underway(what: Underway | None, *, after_warm: bool) -> schema.Underway | None:
    """The compilation in progress, as far as it is known."""
    if what is None:
        return None
    return schema.Underway(
        kind=what.kind,
        called=called(what.name, what.file, what.line),
        name=what.name,
        file=what.file,
        line=what.line,
        caller=what.caller,
        backward=what.backward,
        reason=what.reason,
        plain=plain(what.reason, what.category),
        category=what.category,
        advice=advice(what.category, what.kind, what.reason, dynamic=what.dynamic)
        if after_warm
        else None,
    )
