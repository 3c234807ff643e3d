"""The report of a run summary: all parts together, and its ranks compared. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import convert
from msgspec.structs import replace

from warmwatch.shared.phrases import counted, took
from warmwatch.shared.states import ENDED_STATES, State
from warmwatch_monitor.commands.report.compilations import (
    added,
    changed,
    functions,
    places,
    priced,
    recompiled,
    unfinished,
)
from warmwatch_monitor.commands.report.goodput import (
    after_warm_seconds,
    costs,
    goodput,
    whole_step_seconds,
)
from warmwatch_monitor.commands.report.parts import Failure, Priced, RankLine, Report, Steady
from warmwatch_monitor.commands.report.remedies import refused, remedies
from warmwatch_monitor.figures.compile import CompileTotals, recompiles
from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.figures.rank import LimitedBy, SlowerPeriod, Spread, spread_of
from warmwatch_monitor.figures.training import Baseline
from warmwatch_monitor.model.run_summary import OUT_OF_SIGHT, RankSummary, RunSummary, slowest_of
from warmwatch_monitor.model.snapshot import limit_of
from warmwatch_monitor.output.amounts import clean_step
from warmwatch_monitor.status.schema.rank import Break, End, Worth
from warmwatch_monitor.status.words.run import (
    compiled_longer,
    differs,
    failed_at,
    numbers,
    only_some,
)
from warmwatch_monitor.status.words.states import ended_in_words

UNSEEN = "this is its last known state: no program observed its end"
_STEP_SHARE = 0.05  # a smaller difference between the steps of ranks is not reported


def line(summary: RankSummary) -> RankLine:
    """One rank's row."""
    rank = summary.answer
    first = rank["warmup"].get("first")
    return RankLine(
        rank=summary.rank,
        state=rank["state"],
        how=(rank.get("end") or {}).get("how"),
        steps=rank["steps"],
        compile_seconds=rank["compile"]["seconds"],
        warmup_seconds=first["seconds"] if first else None,
        recompiles=recompiles(rank["compile"]),
        graphs=rank["compile"]["graphs"],
        graph_breaks=rank["compile"]["graph_breaks"],
        step_seconds=clean_step(rank),
    )


def differences(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """One sentence for each difference between the ranks."""
    lines = [line(rank) for rank in ranks]

    def spread(name: str) -> Spread | None:
        return spread_of({line.rank: getattr(line, name) for line in lines})

    seconds, steps = spread("compile_seconds"), spread("step_seconds")
    yield from compiled_longer(seconds, f"rank {seconds.min_rank}" if seconds else "")
    yield from differs("graph", spread("graphs"))
    yield from differs("recompile", spread("recompiles"))
    yield from only_some({rank.rank: {each.category for each in rank.compiled} for rank in ranks})
    if steps and steps.max > (1 + _STEP_SHARE) * steps.min:
        longest = f"{took(steps.max)} in rank {steps.max_rank}"
        yield f"a clean step takes {longest}, {took(steps.min)} in rank {steps.min_rank}"
    by_state = defaultdict[str, list[int]](list)
    for each in lines:
        by_state[ended_in_words(each.state, each.how)].append(each.rank)
    if len(by_state) > 1:
        ordered = sorted(by_state.items(), key=lambda item: -len(item[1]))
        yield "; ".join(f"{numbers(ranks)}: {state}" for state, ranks in ordered)


def report(
    summary: RunSummary,
    before: RunSummary | None = None,
    *,
    now: float | None = None,
) -> Report:
    """``before``: the last comparable run in the history. ``now``: given if the summary may be much
    older.
    """
    lives = summary.state not in ENDED_STATES
    unseen = lives and now is not None and now - summary.seen > OUT_OF_SIGHT
    made = copied(
        summary,
        Report,
        living=lives and not unseen,
        world_size=summary.what.world_size,
        ranks=(),
        doubts=(UNSEEN,) if unseen else (),
    )
    if not summary.ranks:
        return made
    made = _with_ranks(made, summary, first_run=before is None)
    return made if before is None else replace(made, changed=changed(summary, before, made.rank))


def _with_ranks(whole: Report, summary: RunSummary, *, first_run: bool) -> Report:
    ordered = sorted(summary.ranks, key=lambda rank: -rank.answer["compile"]["seconds"])
    slowest = slowest_of(summary)
    answers = {rank.rank: rank.answer for rank in summary.ranks}
    compiled = {rank.rank: priced(rank.compiled) for rank in summary.ranks}
    late = [after_warm_seconds(answers[rank], compiled[rank]) for rank in answers]
    limits = {rank: answer.get("limited_by") for rank, answer in answers.items()}
    made = _of_rank(whole, slowest, compiled[slowest.rank], first_run=first_run)
    failure = _failure(summary, compiled)
    return replace(
        made,
        do=(*refused(failure), *made.do),
        failure=failure,
        conditions=_conditions(summary, slowest),
        limited_by=limit_of(convert(limits, dict[int, LimitedBy | None])),
        costs=costs(list(answers.values()), late, summary.ranks.index(slowest)),
        ranks=tuple(map(line, ordered)),
        differences=tuple(differences(summary.ranks)),
        left_out=sum(rank.left_out for rank in summary.ranks),
        doubts=(*whole.doubts, *_doubts(summary)),
    )


def _failure(summary: RunSummary, compiled: Mapping[int, Sequence[Priced]]) -> Failure | None:
    """Of the rank that failed first, as in the run's sentence."""
    failed = [rank for rank in summary.ranks if rank.answer["state"] == State.FAILED]
    ends = [convert(rank.answer["end"], End) for rank in failed]
    if summary.state != State.FAILED or not failed:
        return None
    first, end = min(
        zip(failed, ends, strict=True),
        key=lambda of: failed_at(of[0].answer["since"], of[1].exception),
    )
    last = max(compiled[first.rank], key=lambda compilation: compilation.ended, default=None)
    return Failure(
        rank=first.rank,
        end=end,
        compilation=last if last and last.failure else None,
    )


def _of_rank(
    whole: Report, summary: RankSummary, compiled: tuple[Priced, ...], *, first_run: bool
) -> Report:
    rank, compile, steps = summary.answer, summary.answer["compile"], summary.answer["step_seconds"]
    first, memory = rank["warmup"].get("first"), rank["torch_memory_bytes"] or {}
    began = steps.get("first_at"), steps.get("first")
    warm_at = first["ended_at"] if first else None
    recompiles_by_cause = (
        *recompiled(
            compiled,
            compile["varying"],
            warm_at,
            None if None in began else began[0] - began[1],
        ),
        *unfinished(rank, compiled, warm_at, whole.seen),
    )
    breaks = convert(compile["breaks"], tuple[Break, ...])
    time = goodput(rank, compiled, whole.seen)
    totals = {name: compile.get(name) for name in CompileTotals.__struct_fields__}
    return replace(
        whole,
        **{**totals, "recompiles": recompiles(compile)},  # with the one in progress, as in `ranks`
        rank=summary.rank,
        steps=rank["steps"],
        evidence=tuple(rank["evidence"]),
        end=convert(rank["end"], End | None),
        first_step_seconds=steps["first"],
        compile_seconds=compile["seconds"],
        precompiled=tuple(compile.get("precompiled") or ()),
        warmup_seconds=first["seconds"] if first else None,
        warmup_steps=first["steps"] if first else None,
        goodput=time,
        steady=Steady(
            count=steps.get("clean_count"),
            seconds=clean_step(rank),
            median=steps["median"],
            p99=steps["p99"],
        ),
        whole_step_seconds=whole_step_seconds(rank, whole.seen),
        baseline=convert(rank.get("baseline"), Baseline | None),
        slower=convert(rank.get("slower_periods") or (), tuple[SlowerPeriod, ...]),
        joules_per_step=(rank["energy"] or {}).get("joules_per_clean_step"),
        worth=_at_clean_step(convert(rank["worth"], Worth | None), clean_step(rank)),
        peak_memory_bytes=memory.get("peak_allocated"),
        phases=added((compile["phase_seconds"],)),
        functions=functions(compiled),
        recompiled=recompiles_by_cause,
        breaks=breaks,
        places=places(compiled),
        do=remedies(
            rank, compiled, recompiles_by_cause, breaks, whole.what, time, first_run=first_run
        ),
    )


def _at_clean_step(worth: Worth | None, seconds: float | None) -> Worth | None:
    """``worth`` with the rates of the whole run; those in the answer are recent ones."""
    if worth is None or not seconds:
        return worth and replace(
            worth, tokens_per_second=None, samples_per_second=None, mfu_ratio=None
        )
    tokens, samples, flops = worth.tokens_per_step, worth.samples_per_step, worth.flops_per_step
    return replace(
        worth,
        tokens_per_second=tokens / seconds if tokens else None,
        samples_per_second=samples / seconds if samples else None,
        mfu_ratio=flops / seconds / worth.peak_flops if flops and worth.peak_flops else None,
    )


def _conditions(summary: RunSummary, slowest: RankSummary) -> dict[str, str]:
    """Each condition once, in the words of the reported rank if it holds there."""
    values: dict[str, str] = {}
    for rank in (slowest, *summary.ranks):
        for held in rank.answer["conditions"]:
            values.setdefault(held["condition"], held["words"])
    return values


def _doubts(summary: RunSummary) -> list[str]:
    """Reasons why this report is incomplete."""
    left = sum(rank.left_out for rank in summary.ranks)
    errors = sum(rank.answer["agent_errors"] or 0 for rank in summary.ranks)
    seen, world = len(summary.ranks), summary.what.world_size
    return [
        text
        for text, holds in (
            (f"the list leaves out {counted(left, 'compilation')}", left),
            (f"the agent caught {counted(errors, 'error')} of its own", errors),
            (f"{seen} of {world} ranks were seen here", world is not None and seen < world),
        )
        if holds
    ]
