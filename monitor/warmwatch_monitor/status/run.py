"""One run of the ``/status`` document and its ranks: state, compiler, steps, pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice

from warmwatch.shared.advice import advice_for
from warmwatch.shared.breaks import break_remedy_for, expected_break, plain_break
from warmwatch.shared.phrases import broken_place
from warmwatch_monitor.figures.compile import CompileTarget, is_without_grad
from warmwatch_monitor.figures.declared import copied, total
from warmwatch_monitor.figures.machine import Process
from warmwatch_monitor.figures.training import COUNTED, Warmup, WarmupSpan
from warmwatch_monitor.model.causes import spread
from warmwatch_monitor.model.figures import (
    Figures,
    Log,
    Memory,
    Steps,
    Warmups,
    Worth,
    beyond_steady_seconds,
)
from warmwatch_monitor.model.journal import Compilation, GraphBreak, LongStep, TracedPlace
from warmwatch_monitor.model.records import FunctionCost, VaryingDim, families
from warmwatch_monitor.model.snapshot import RankView, RunView, all_warm, any_compiling
from warmwatch_monitor.output.amounts import failed_at, label, plain_reason
from warmwatch_monitor.status.schema import rank as schema
from warmwatch_monitor.status.schema import status as status_schema
from warmwatch_monitor.status.words.conditions import conditions, inefficiencies, remedy_of
from warmwatch_monitor.status.words.evidence import evidence, is_evaluation, long_step_words
from warmwatch_monitor.status.words.progress import deadline
from warmwatch_monitor.status.words.repeating import (
    dropped,
    remedy_of_compilation,
    remedy_of_dropped,
)
from warmwatch_monitor.status.words.requested import remedy, since_seconds
from warmwatch_monitor.status.words.run import decisive_rank, differences, run_answer, title
from warmwatch_monitor.status.words.states import end_of, qualified_by, state_words

# entries of the lists of ``compile``
MOST = 10  # functions
LAST = 5  # compilations
BREAKS = 20
VARYING = 20
# A record can claim any world size, and the seen ranks can have gaps between them.
MOST_MISSING_LISTED = 100
_FX = "inductor_fx"
_TOTALS = ("compilations", "failures", "seconds", "cache_hits", "cache_misses")


def run_in_words(view: RunView) -> status_schema.RunAnswer:
    sentence, decisive = run_answer(view), decisive_rank(view)
    return status_schema.RunAnswer(
        run=view.run,
        state=view.state,
        state_words=state_words(decisive),
        qualified_by=qualified_by(decisive),
        summary=sentence.summary,
        title=title(view),
        subtitle=sentence.subtitle,
        clauses=list(sentence.clauses),
    )


def run_document(view: RunView) -> status_schema.Run:
    missing, decisive, stretch = view.missing_ranges, decisive_rank(view), view.stretch
    return copied(
        run_in_words(view),
        status_schema.Run,
        name=view.who.name,
        owner=view.who.owner,
        owner_uid=view.who.owner_uid,
        decisive_rank=decisive.rank,
        compiling=any_compiling([view]),
        compiling_since=stretch.began_at if stretch else None,
        compiling_seconds=stretch.seconds if stretch else None,
        compiler_seconds=stretch.compiler_seconds if stretch else None,
        warm=all_warm([view]),
        limited_by=view.limited_by,
        compile_gpu_seconds=total(rank.compile_gpu_seconds for rank in view.ranks),
        compile_joules=total(spent.compile_joules for rank in view.ranks if (spent := rank.energy)),
        world_size=view.world_size,
        missing_ranks=list(islice(chain.from_iterable(missing), MOST_MISSING_LISTED)),
        missing_ranges=[(gap.start, gap.stop - 1) for gap in missing[:MOST_MISSING_LISTED]],
        missing_count=sum(map(len, missing)),
        skew=_skew(view),
        deadline=deadline(view, decisive),
        ranks=[rank(rank_view, ended_together=view.ended_together) for rank_view in view.ranks],
    )


def _skew(view: RunView) -> status_schema.Skew | None:
    """How far apart the ranks are; ``None`` for a single rank."""
    ranks = view.ranks
    if len(ranks) < 2:
        return None
    return status_schema.Skew(
        compile_seconds=spread(ranks, lambda rank: rank.figures.compile.seconds),
        compilations=spread(ranks, lambda rank: rank.figures.compile.compilations),
        graphs=spread(ranks, lambda rank: rank.figures.compile.graphs),
        recompiles=spread(ranks, lambda rank: rank.figures.compile.recompiles),
        first_step_at=spread(ranks, lambda rank: rank.figures.steps.first_at),
        step_seconds=spread(view.living, lambda rank: rank.figures.steps.length),
        differences=differences(view),
    )


def _warmup(warmups: Warmups) -> Warmup:
    """The latest warm-up, how many there were, and the first one."""
    latest, ended = warmups.latest or WarmupSpan(), warmups.latest is not None
    return copied(latest, Warmup, ended=ended, count=warmups.count, first=warmups.first)


def _step_seconds(steps: Steps) -> schema.StepSeconds:
    """Lengths of single steps and of clean steps."""
    return copied(
        steps,
        schema.StepSeconds,
        median=steps.clean.median,
        p99=steps.clean.p99,
        typical=steps.clean.typical,
        median_low=steps.clean.median_low,
        median_high=steps.clean.median_high,
        clean_count=steps.clean.count,
        clean_seconds=steps.clean.sum_seconds,
    )


def _long_step(step: LongStep) -> schema.LongStep:
    return copied(
        step,
        schema.LongStep,
        checkpoint_seconds=step.saving_seconds,
        evaluation_seconds=step.evaluating_seconds,
        evaluation=is_evaluation(step),
        words=long_step_words(step),
    )


def _cost(steps: Steps) -> schema.Cost:
    """Compile cost so far: how much longer the affected steps took than clean steps."""
    return schema.Cost(
        first_step_seconds=steps.first,
        steady_step_seconds=steps.clean.typical,
        beyond_steady_seconds=beyond_steady_seconds(steps),
        steps_touched=steps.touched.count,
    )


def rank(view: RankView, *, ended_together: bool | None = None) -> schema.Rank:
    """A rank as JSON; ``ended_together`` is its run's."""
    figures, judgement, steps = view.figures, view.judgement, view.figures.steps
    waited = steps.batch_wait_seconds if steps.batches else None
    return schema.Rank(
        rank=view.rank,
        state=judgement.state,
        attached_at=figures.who.attached_at,
        since=figures.progress.state_since,
        steps=steps.count,
        clean_steps=judgement.clean_steps,
        last_step_age_seconds=figures.progress.last_step_age_seconds,
        compile=_compile(view),
        warm_by=judgement.warm_by,
        warmup=_warmup(figures.warmups),
        step_seconds=_step_seconds(steps),
        long_steps=[_long_step(step) for step in figures.log.long_steps],
        slower=view.slower,
        slower_periods=list(view.slower_periods),
        limited_by=view.limited_by,
        memory_growing=view.memory_growth,
        workers_memory=view.workers_memory,
        compiling_workers=figures.loader_workers,
        batches=None
        if steps.batches is None
        else schema.Batches(count=steps.batches, wait_seconds=waited),
        pauses=copied(figures.pauses, schema.Pauses, data_seconds=waited),
        cost=_cost(steps),
        baseline=figures.gain,
        worth=_worth(view),
        conditions=[
            schema.Condition(condition=name, words=clause.text, advice=remedy_of(name, view))
            for name, clause in conditions(view).items()
        ],
        gpus=list(view.gpu_uuids),
        energy=view.energy,
        evidence=evidence(view),
        pid=figures.life.pid,
        host=figures.who.host,
        attempt=figures.who.attempt,
        collective_timeout_seconds=figures.who.collective_timeout_seconds,
        collective_backend=figures.who.collective_backend,
        alive=figures.life.alive,
        end=ending(view, ended_together),
        process=copied(view.process, Process) if view.process else None,
        torch_memory_bytes=_memory(figures.memory),
        agent_errors=figures.agent.errors,
        journal_unread_bytes=figures.agent.incomplete_bytes,
    )


def ending(view: RankView, ended_together: bool | None) -> schema.End | None:
    """Its end; ``None`` while it lives."""
    ended, life, cut_off = end_of(view), view.figures.life, view.figures.compile.open
    if ended is None:
        return None
    return schema.End(
        how=ended,
        exit_code=life.exit_code,
        exception=life.exception,
        place=life.raised,
        refusal=life.refusal,
        signal=life.signal,
        out_of_memory=view.oom_killed,
        phase=(cut_off.phase or "other") if cut_off else None,
        compiling_since=cut_off.began_at if cut_off else None,
        ended_together=ended_together,
    )


def _worth(view: RankView) -> schema.Worth | None:
    """Work per step and recent throughput; ``None``: the work is not known."""
    worth, mfu = view.figures.worth, view.utilization
    if worth == Worth():
        return None
    seconds = view.figures.steps.length
    return schema.Worth(
        tokens_per_second=worth.tokens / seconds if worth.tokens and seconds else None,
        samples_per_second=worth.samples / seconds if worth.samples and seconds else None,
        mfu_ratio=mfu.ratio if mfu else None,
        tokens_per_step=worth.tokens,
        samples_per_step=worth.samples,
        flops_per_step=worth.operations,
        formula=worth.origin,
        excluded=list(worth.excluded) if worth.origin == COUNTED else [],
        parameters=worth.parameters,
        estimated=worth.estimated,
        dtype=next(iter(worth.shares)),
        dtypes=dict(worth.shares),
        peak_flops=mfu.peak_flops if mfu else None,
    )


def _memory(memory: Memory | None) -> schema.TorchMemory | None:
    return None if memory is None else schema.TorchMemory(at=memory.at, **memory.bytes)


def _functions(costs: Sequence[FunctionCost] | None) -> list[schema.Function] | None:
    """The MOST most expensive functions, and the sum of the others; ``None``: not known."""
    if costs is None:
        return None
    rest = costs[MOST:]
    return [*map(_function, costs[:MOST]), *([_sum_of(rest)] if rest else ())]


def _sum_of(rest: Sequence[FunctionCost]) -> schema.Function:
    phases = Counter[str]()
    for function in rest:
        phases.update(function.cost.phase_seconds)
    return schema.Function(
        **{name: sum(getattr(cost, name) for cost in rest) for name in _TOTALS},
        others=sum(cost.others or 1 for cost in rest),
        phase_seconds=dict(phases),
        slowest_kernels=[],
    )


def _function(function: FunctionCost) -> schema.Function:
    cost = function.cost
    return copied(
        function,
        schema.Function,
        called=label(function),
        phase_seconds=dict(cost.phase_seconds),
        ops=cost.ops,
        guards=cost.guards,
        guard_seconds=cost.guard_seconds,
        kernels=cost.kernels,
        slowest_kernels=[
            schema.Kernel(name=name, seconds=seconds) for name, seconds in cost.slowest
        ],
        allocated_bytes=cost.allocated,
        reserved_bytes=cost.reserved,
    )


def _compile(view: RankView) -> schema.Compile:
    """The key ``compile``: the compiler's past and current activity."""
    compile, log = view.figures.compile, view.figures.log
    graphs = compile.caches[_FX] if compile.caches else None
    slow, more_inefficiencies = inefficiencies(view.figures)
    return copied(
        compile,
        schema.Compile,
        phase=view.judgement.phase,
        limit_seconds=view.figures.progress.compile_limit_seconds,
        idle_seconds=view.idle_seconds if view.judgement.compiling else None,
        gpu_seconds=view.compile_gpu_seconds,
        phase_seconds={name: spent for name, spent in compile.phase_seconds.items() if spent},
        cache_hits=graphs.hits if graphs else None,
        cache_misses=graphs.misses if graphs else None,
        progress=compile.open.counted if compile.open else None,
        estimate=view.estimate if view.judgement.compiling else None,
        underway=underway(view.figures),
        functions=_functions(log.functions),
        last=_last(log),
        more_breaks=max(0, len(log.breaks) - BREAKS),
        more_varying=max(0, len(log.varying) - VARYING),
        more_inefficiencies=more_inefficiencies,
        breaks=list(map(_break, sorted(log.breaks, key=_is_meant)[:BREAKS])),
        varying=list(map(_varying, log.varying[:VARYING])),
        inefficiencies=slow,
    )


def _is_meant(graph_break: GraphBreak) -> bool:
    """These come last: there is nothing to change."""
    name, library = graph_break.name, graph_break.library
    return expected_break(graph_break.reason, name, library=library) is not None


def _break(graph_break: GraphBreak) -> schema.Break:
    reason, library = graph_break.reason, graph_break.library
    *also, last = _broken_places(graph_break)
    return schema.Break(
        reason=plain_break(reason, graph_break.name, library=library) or reason,
        count=graph_break.count,
        called=last.called,
        eager=last.eager,
        also=also,
        advice=break_remedy_for(graph_break),
    )


def _broken_places(graph_break: GraphBreak) -> Iterator[schema.BrokenPlace]:
    """A place for each function, with all lines: ``forward (train.py:10, :12 and :14)``."""
    lines: dict[tuple[str | None, ...], list[TracedPlace]] = {}
    for at in (*graph_break.also, graph_break):
        key = at.name, at.file, at.caller, at.eager
        lines[key] = [*lines.pop(key, ()), at]  # the last place of the reason stays the last one
    for places in lines.values():
        first, *others = sorted(places, key=lambda at: at.line or 0)
        called = broken_place(*first.function, first.caller).replace("`", "")
        if others:
            *more, last = (f":{at.line}" for at in others)
            each = f"{', '.join((f':{first.line}', *more))} and {last}"
            called = called.replace(f":{first.line})", f"{each})")
        yield schema.BrokenPlace(called=called or None, eager=first.eager)


def _last(log: Log) -> list[schema.PastCompilation]:
    """The last compilations, each with the total cost of its family, as far as recorded.

    Before them the dearest, which took that long with its family, if it is an earlier one.
    """
    compilations, dearest = log.compilations, log.dearest
    totals = {
        family[0]: total(compilations[at].seconds for at in family)
        for family in families(compilations)
    }
    first = max(0, len(compilations) - LAST)
    newest = (log.underway,) if log.underway else ()
    trained = {each.id for each in compilations if each.id and each.kind == "backward"}
    last = [
        compilation(compilations[at], totals.get(at), (*compilations[at + 1 :], *newest), trained)
        for at in range(first, len(compilations))
    ]
    if dearest is None or dearest in compilations[first:]:
        return last
    at = compilations.index(dearest) + 1 if dearest in compilations else 0
    later = (*compilations[at:], *newest)
    return [compilation(dearest, log.dearest_seconds, later, trained), *last]


def compilation(
    compilation: Compilation,
    total_seconds: float | None = None,
    later: Sequence[CompileTarget] = (),
    trained: Collection[str] = (),
) -> schema.PastCompilation:
    """``trained``: compile ids with a recorded backward."""
    remedy = remedy_of_compilation(compilation, later) or remedy_of_dropped(compilation)
    without_grad = is_without_grad(compilation.id, compilation.reason, trained)
    return copied(
        compilation,
        schema.PastCompilation,
        total_seconds=total_seconds,
        between_steps=compilation.evaluating or without_grad,
        plain=plain_reason(compilation) or dropped(compilation),
        advice=remedy,
        failed_at=failed_at(compilation),
        called=label(compilation),
    )


def _varying(dim: VaryingDim) -> schema.Varying:
    return copied(
        dim,
        schema.Varying,
        values=list(dim.values),
        smallest=dim.lowest,
        largest=dim.highest,
        step_seconds_before=dim.before_seconds,
        step_seconds_since=since_seconds(dim),
        words=helps.text if (helps := remedy(dim)) else None,
    )


def underway(figures: Figures) -> schema.Underway | None:
    """The compilation in progress, as far as it is known."""
    what = figures.log.underway
    if what is None:
        return None
    late = bool(figures.warmups.count or figures.steps.repeated)
    return copied(
        what,
        schema.Underway,
        called=label(what),
        plain=plain_reason(what) or dropped(what),
        advice=advice_for(what, after_warm=late) or remedy_of_dropped(what),
    )
