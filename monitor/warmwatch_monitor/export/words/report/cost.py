"""What compiling cost, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.document import Section
from warmwatch_monitor.export.report.parts import Cost, Report
from warmwatch_monitor.export.words import amounts
from warmwatch_monitor.export.words.amounts import took
from warmwatch_monitor.export.words.tables import table
from warmwatch_monitor.export.words.wording import counted

_WHAT = {"warm-up": "warm-up", "recompiles": "recompiles after it", "compiling": "all compiling"}
_NEARLY = 0.95


def cost(report: Report) -> Section | None:
    """What compiling cost; a column of which nothing is known is left out."""
    if not report.costs:
        return None
    names = ("what", "seconds>", "GPU-seconds>", "energy>", "money>")
    rows = [tuple(_cost(one)) for one in report.costs]
    remarks = tuple(_remarks(report))
    return Section("What compiling cost", table=table(names, rows, sparse=True), remarks=remarks)


def _cost(one: Cost) -> Iterator[str]:
    steps = f", {counted(one.steps, 'step')}" if one.steps is not None else ""
    yield f"{_WHAT[one.what]}{steps}"
    yield took(one.seconds)
    yield "" if one.gpu_seconds is None else amounts.number(one.gpu_seconds)
    about = "about " if one.estimated else ""
    yield "" if one.joules is None else f"{about}{amounts.energy(one.joules)}"
    yield "" if one.money is None else amounts.money(one.money)


def _remarks(report: Report) -> Iterator[str]:
    last, price = report.costs[-1], report.price_per_gpu_hour
    if len(report.ranks) > 1:
        yield "Seconds are those of the slowest rank, all else is of all ranks together."
    if len(report.costs) > 1:
        yield "The warm-up is by the clock, its steps and all; all compiling is the compiler alone."
    if last.gpu_seconds is None:
        yield "GPU-seconds, energy and money: no GPU of it is known."
    elif last.joules is None:
        yield "Energy: nobody measured it; the daemon (`warmwatch serve`) does while it runs."
    elif last.covered is not None and last.covered < _NEARLY:
        share = amounts.percent(last.covered)
        yield f"The energy is that of {share} of the compile time: the monitor came late."
    if any(one.estimated for one in report.costs):
        yield "Energy was measured for all compiling and is shared out by its time."
    if price is not None and last.money is not None:
        said = amounts.money(price)
        yield f"Money: {said} for an hour of a GPU (WARMWATCH_PRICE_PER_GPU_HOUR)."
