"""The ranks of a run beside each other, in words. Pure."""

from __future__ import annotations

from warmwatch_monitor.export.document import Item, Section
from warmwatch_monitor.export.report.parts import RankLine, Report
from warmwatch_monitor.export.words.amounts import took
from warmwatch_monitor.export.words.tables import table

_RANKS = 16
_NAMES = ("rank>", "state", "compiled>", "warm-up>", "recompiles>", "steps>", "a step>")


def ranks(report: Report) -> Section | None:
    """The ranks, the slowest first, and in what they differ."""
    if len(report.ranks) < 2:
        return None
    rows = [_row(one) for one in report.ranks[:_RANKS]]
    more = len(report.ranks) - len(rows)
    said = [Item(words) for words in report.differences] or [Item("the ranks did the same")]
    remarks = (f"{more} more ranks, which compiled no longer than these.",) if more else ()
    return Section("Ranks, the slowest first", table(_NAMES, rows), tuple(said), remarks)


def _row(one: RankLine) -> tuple[str, ...]:
    return (
        str(one.rank),
        one.state,
        took(one.compile_seconds),
        "" if one.warmup_seconds is None else took(one.warmup_seconds),
        "" if one.recompiles is None else str(one.recompiles),
        str(one.steps),
        "" if one.step_seconds is None else took(one.step_seconds),
    )
