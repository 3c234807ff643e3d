"""The report of a run summary: all parts together, and its ranks compared. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from warmwatch.shared.phrases import counted, took
from warmwatch.shared.states import ENDED_STATES
from warmwatch_monitor.commands.report.changes import changed
from warmwatch_monitor.commands.report.compilations import (
    added,
    first_step_began,
    functions,
    places,
    priced,
    recompiled,
)
from warmwatch_monitor.commands.report.costs import costs
from warmwatch_monitor.commands.report.goodput import (
    after_warm_seconds,
    goodput,
    whole_step_seconds,
)
from warmwatch_monitor.commands.report.parts import Break, Priced, RankLine, Report, Steady
from warmwatch_monitor.commands.report.remedies import remedies
from warmwatch_monitor.figures.compile import CompileTotals
from warmwatch_monitor.model import REASONS, LimitedBy, limit_of
from warmwatch_monitor.model.run_summary import OUT_OF_SIGHT, RankSummary, RunSummary
from warmwatch_monitor.output.amounts import clean_step
from warmwatch_monitor.output.states import recompiles
from warmwatch_monitor.status.words.run import numbers

# as in the sentence of a living run: a long difference with a large share
_APART_SECONDS, _APART_SHARE = 5.0, 0.2
_STEP_SHARE = 0.05

Rank = Mapping[str, Any]


def line(summary: RankSummary) -> RankLine:
    """One rank's row."""
    rank = summary.answer
    first = rank["warmup"].get("first")
    return RankLine(
        rank=summary.rank,
        state=rank["state"],
        steps=rank["steps"],
        compile_seconds=rank["compile"]["seconds"],
        warmup_seconds=first["seconds"] if first else None,
        recompiles=recompiles(rank["compile"]),
        graphs=rank["compile"]["graphs"],
        step_seconds=clean_step(rank),
    )


def differences(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """One sentence for each difference between the ranks."""
    if len(ranks) < 2:
        return
    lines = [line(rank) for rank in ranks]
    yield from _apart(lines)
    yield from _counts(lines)
    yield from _categories(ranks)
    yield from _slow_steps(lines)
    yield from _states(lines)


def _apart(lines: Sequence[RankLine]) -> Iterator[str]:
    least = min(lines, key=lambda line: line.compile_seconds)
    most = max(lines, key=lambda rank_line: rank_line.compile_seconds)
    gap = most.compile_seconds - least.compile_seconds
    if gap >= max(_APART_SECONDS, _APART_SHARE * most.compile_seconds):
        yield f"rank {most.rank} compiled {took(gap)} longer than rank {least.rank}"


def _counts(lines: Sequence[RankLine]) -> Iterator[str]:
    for noun, key in (("graph", "graphs"), ("recompile", "recompiles")):
        pairs = [
            (getattr(line, key), line.rank) for line in lines if getattr(line, key) is not None
        ]
        if pairs and min(pairs)[0] != max(pairs)[0]:
            (few, least), (many, most) = min(pairs), max(pairs)
            yield f"{counted(many, noun)} in rank {most}, {few} in rank {least}"


def _categories(ranks: Sequence[RankSummary]) -> Iterator[str]:
    for category in REASONS:
        hit = [rank.rank for rank in ranks if any(c.category == category for c in rank.compiled)]
        if hit and len(hit) < len(ranks):
            yield f"only {numbers(hit)} recompiled ({category})"


def _slow_steps(lines: Sequence[RankLine]) -> Iterator[str]:
    pairs = [(line.step_seconds, line.rank) for line in lines if line.step_seconds]
    if len(pairs) > 1 and max(pairs)[0] > (1 + _STEP_SHARE) * min(pairs)[0]:
        (short, least), (long, most) = min(pairs), max(pairs)
        yield f"a clean step takes {took(long)} in rank {most}, {took(short)} in rank {least}"


def _states(lines: Sequence[RankLine]) -> Iterator[str]:
    by_state: dict[str, list[int]] = {}
    for line in lines:
        by_state.setdefault(line.state, []).append(line.rank)
    if len(by_state) > 1:
        ordered = sorted(by_state.items(), key=lambda item: -len(item[1]))
        yield "; ".join(f"{numbers(ranks)}: {state}" for state, ranks in ordered)


# counts of a rank that a report has under the same name
UNSEEN = "this is its last known state: no program observed its end"


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
    whole = Report(
        id=summary.id,
        run=summary.run,
        owner=summary.owner,
        host=summary.host,
        began=summary.began,
        ended=summary.ended,
        seen=summary.seen,
        state=summary.state,
        living=lives and not unseen,
        summary=summary.summary,
        what=summary.what,
        world_size=summary.what.world_size,
        doubts=(UNSEEN,) if unseen else (),
    )
    if not summary.ranks:
        return whole
    made = _with_ranks(whole, summary, first_run=before is None)
    return made if before is None else replace(made, changed=changed(summary, before, made.rank))


def slowest_of(summary: RunSummary) -> RankSummary:
    """The rank that compiled longest: the others waited for it. The first, if none compiled."""
    return max(summary.ranks, key=lambda rank: (rank.answer["compile"]["seconds"], -rank.rank))


def _with_ranks(whole: Report, summary: RunSummary, *, first_run: bool) -> Report:
    ordered = sorted(summary.ranks, key=lambda rank: -rank.answer["compile"]["seconds"])
    slowest = slowest_of(summary)
    each = {rank.rank: priced(rank.compiled) for rank in summary.ranks}
    again = [after_warm_seconds(rank.answer, each[rank.rank]) for rank in summary.ranks]
    answers = [rank.answer for rank in summary.ranks]
    result = costs(answers, again, summary.ranks.index(slowest))
    return replace(
        _of_rank(whole, slowest, each[slowest.rank], first_run=first_run),
        conditions=_conditions(summary, slowest),
        limited_by=_limited_by(summary.ranks),
        costs=result,
        ranks=tuple(line(rank) for rank in ordered),
        differences=tuple(differences(summary.ranks)),
        left_out=sum(rank.left_out for rank in summary.ranks),
        doubts=(*whole.doubts, *_doubts(summary)),
    )


def _limited_by(ranks: Sequence[RankSummary]) -> Mapping[str, Any] | None:
    """What limited the run when it was last warm, by the same rule as in ``/status``."""
    values = {summary.rank: summary.answer.get("limited_by") for summary in ranks}
    limit = limit_of({rank: convert(value, LimitedBy | None) for rank, value in values.items()})
    return None if limit is None else to_builtins(limit)


def _of_rank(
    whole: Report, summary: RankSummary, compiled: tuple[Priced, ...], *, first_run: bool
) -> Report:
    rank, compile = summary.answer, summary.answer["compile"]
    first, worth = rank["warmup"].get("first"), rank["worth"] or {}
    steady = _steady(rank)
    again = recompiled(
        compiled,
        compile["varying"],
        first["ended_at"] if first else None,
        first_step_began(rank["step_seconds"]),
    )
    breaks = tuple(
        Break(
            reason=value["reason"],
            count=value["count"],
            whole=value.get("called") if value.get("whole") else None,
            advice=value.get("advice"),
        )
        for value in compile["breaks"]
    )
    memory = rank["torch_memory_bytes"] or {}
    time = goodput(rank, compiled, whole.seen)
    return replace(
        whole,
        rank=summary.rank,
        steps=rank["steps"],
        evidence=tuple(rank["evidence"]),
        end=rank["end"],
        first_step_seconds=rank["step_seconds"]["first"],
        compile_seconds=compile["seconds"],
        **{
            **{name: compile[name] for name in CompileTotals.__struct_fields__},
            "recompiles": recompiles(compile),  # with the one in progress, as in the table of ranks
        },
        precompiled=tuple(compile.get("precompiled") or ()),
        warmup_seconds=first["seconds"] if first else None,
        warmup_steps=first["steps"] if first else None,
        goodput=time,
        steady=steady,
        whole_step_seconds=whole_step_seconds(rank, whole.seen),
        baseline=rank.get("baseline"),
        slower=tuple(rank.get("slower_periods") or ()),
        joules_per_step=(rank["energy"] or {}).get("joules_per_clean_step"),
        **_rates(worth, steady.seconds),
        peak_memory_bytes=memory.get("peak_allocated"),
        phases=added((compile["phase_seconds"],)),
        functions=functions(compiled),
        recompiled=again,
        breaks=breaks,
        places=places(compiled),
        do=remedies(rank, compiled, again, breaks, whole.what, time, first_run=first_run),
    )


def _rates(worth: Mapping[str, Any], seconds: float | None) -> dict[str, float | None]:
    """Throughput at the whole run's speed; the rates in the answer are recent ones."""

    def over(name: str, by: float | None) -> float | None:
        amount = worth.get(name)
        return amount / by if amount and by else None

    peak = worth.get("peak_flops")
    return {
        "tokens_per_second": over("tokens_per_step", seconds),
        "samples_per_second": over("samples_per_step", seconds),
        "mfu_ratio": over("flops_per_step", seconds * peak if seconds and peak else None),
    }


def _steady(rank: Mapping[str, Any]) -> Steady:
    steps = rank["step_seconds"]
    return Steady(
        count=steps.get("clean_count"),
        seconds=clean_step(rank),
        median=steps["median"],
        p99=steps["p99"],
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
