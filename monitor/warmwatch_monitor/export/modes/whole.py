"""The table of modes, of the Accounts of their runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from warmwatch_monitor.export.comparison import Comparison, compare
from warmwatch_monitor.export.comparison.break_even import break_even
from warmwatch_monitor.export.comparison.parts import EAGER, BreakEven, Measured, Side
from warmwatch_monitor.export.comparison.uncertain import ratio
from warmwatch_monitor.export.modes.parts import Modes, Row, Tried
from warmwatch_monitor.export.report.whole import slowest_of
from warmwatch_monitor.model.account import Account

_DEFAULT = "default"
_GONE = frozenset({"failed", "lost"})


def modes(
    tried: Sequence[Tried],
    *,
    training_steps: int | None = None,
    caches: str = "cold",
    imposed: Sequence[str] = (),
    untried: Sequence[str] = (),
) -> Modes:
    """Each mode's row, held against eager where that was measured, else against the first."""
    seen = {one.mode: one.account for one in tried if one.account and one.account.ranks}
    compared = compare(list(seen.values()), labels=list(seen)) if seen else None
    rows = tuple(_row(one, compared, training_steps) for one in tried)
    first = next(iter(seen.values()), None)
    return Modes(
        rows=rows,
        baseline=_baseline(compared),
        training_steps=training_steps,
        caches=caches,
        torch=first.what.torch if first else None,
        gpus=first.what.gpus if first else (),
        imposed=tuple(imposed),
        untried=tuple(untried),
        incomparable=compared.incomparable if compared else (),
    )


def _baseline(of: Comparison | None) -> str | None:
    """Eager, where its step is known; else the first whose step is."""
    known = [one.label for one in of.sides if one.steady is not None] if of else []
    return EAGER if EAGER in known else next(iter(known), None)


def _row(tried: Tried, compared: Comparison | None, training_steps: int | None) -> Row:
    row = Row(
        mode=tried.mode,
        outcome="nothing",
        ended_by=tried.ended_by,
        code=tried.code,
        seconds=tried.seconds,
        output=tried.output,
        others=tried.others,
    )
    account = tried.account
    if account is None or not account.ranks or compared is None:
        return replace(row, outcome="failed") if tried.code else row
    sides = {one.label: one for one in compared.sides}
    side, baseline = sides[tried.mode], sides.get(_baseline(compared) or "")
    row = _with_account(_with_side(row, side), account)
    row = replace(row, outcome=_outcome(row))
    if side is baseline or baseline is None:
        return replace(row, total_seconds=_total(side, training_steps))
    return replace(
        row,
        speed_up=_speed_up(side, baseline),
        break_even=break_even(side, baseline),
        against_default=_against_default(side, sides.get(_DEFAULT), baseline),
        total_seconds=_total(side, training_steps),
    )


def _with_side(row: Row, side: Side) -> Row:
    return replace(
        row,
        id=side.id,
        run=side.run,
        state=side.state,
        steps=side.steps,
        clean_steps=side.clean_steps,
        first_step_seconds=side.first_step_seconds,
        first_step_memory_bytes=side.first_step_memory_bytes,
        peak_memory_bytes=side.peak_memory_bytes,
        steady=side.steady,
        steady_p99_seconds=side.steady_p99_seconds,
        joules_per_step=side.joules_per_step,
        compile_seconds=side.compile_seconds,
        cost_seconds=side.cost_seconds,
        graphs=side.graphs,
        graph_breaks=side.graph_breaks,
        recompiles=side.recompiles,
    )


def _with_account(row: Row, account: Account) -> Row:
    """What a comparison does not ask of it."""
    slowest: dict[str, Any] = dict(slowest_of(account).answer)
    answers = [one.answer for one in account.ranks]
    pauses, compile = slowest["pauses"], slowest["compile"]
    count, seconds = pauses.get("evaluations"), pauses.get("evaluation_seconds")
    held = [one for answer in answers for one in answer["conditions"]]
    return replace(
        row,
        exception=next((e for one in answers if (e := (one["end"] or {}).get("exception"))), None),
        evaluations=count,
        evaluation_seconds=seconds / count if count and seconds is not None else None,
        compiled=bool(compile["seconds"]),
        wrappings=account.what.wrappings,
        agent_errors=sum(one["agent_errors"] or 0 for one in answers),
        gpus=sum(len(one["gpus"]) for one in answers),
        conditions={one["condition"]: one["words"] for one in held},
        summary=account.summary,
    )


def _outcome(row: Row) -> str:
    """An end by us is no failure, and a script that was fully measured may fail all the same."""
    if row.ended_by == "itself" and (row.code or row.state in _GONE):
        return "failed"
    if not row.steps:
        return "no_steps"
    return "measured" if row.steady is not None else "unmeasured"


def _speed_up(side: Side, baseline: Side) -> Measured | None:
    if side.steady is None or baseline.steady is None:
        return None
    return ratio(baseline.steady, side.steady)


def _against_default(side: Side, default: Side | None, baseline: Side) -> BreakEven | None:
    """What tuning costs beyond compiling is to be earned beyond it."""
    if default is None or default is side or default is baseline or side.label == EAGER:
        return None
    return break_even(side, default)


def _total(side: Side, training_steps: int | None) -> float | None:
    if training_steps is None or side.steady is None or side.cost_seconds is None:
        return None
    return side.cost_seconds + training_steps * side.steady.value
