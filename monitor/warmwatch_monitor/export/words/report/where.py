"""Where the time of a run went, and how long its steps are, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from warmwatch_monitor.export.document import Section
from warmwatch_monitor.export.report.parts import Report
from warmwatch_monitor.export.words import amounts
from warmwatch_monitor.export.words.amounts import took
from warmwatch_monitor.export.words.baseline import gained
from warmwatch_monitor.export.words.tables import table
from warmwatch_monitor.export.words.wording import counted
from warmwatch_monitor.model.worth import HALF_A_BIN

_SEEN = 0.0005  # seconds: what is less is none
_ALWAYS = "clean steps"
_NOT_TOLD = {
    "clean steps": "how long the clean steps took together",
    "waiting for data": "waiting for data",
    "evaluation": "evaluations (frameworks tell of them, or warmwatch.evaluating())",
}


def where(report: Report) -> Section:
    """The shares, and the lengths that people ask for."""
    shares = report.goodput.shares if report.goodput else ()
    rows = [
        (one.name, took(one.seconds), amounts.percent(one.ratio))
        for one in shares
        if one.seconds >= _SEEN or one.name == _ALWAYS
    ]
    said = table(("what", "took>", "share>"), rows)
    remarks = tuple(_lengths(report))
    return Section("Where the time went", said, remarks=remarks, chart="goodput" if rows else None)


def _lengths(report: Report) -> Iterator[str]:
    if report.rank is None:
        yield "No rank of it is known, so nothing more is."
        return
    if len(report.ranks) > 1:
        yield f"This is rank {report.rank}, which compiled longest."
    if report.first_step_seconds is not None:
        yield f"First step: {took(report.first_step_seconds)}."
    yield f"Steady step: {steady(report)}."
    if eager := _baseline(report.baseline):
        yield eager
    yield f"Compiling: {_compiling(report)}."
    if report.goodput is not None and (untold := report.goodput.untold) and not report.living:
        names = "; ".join(_NOT_TOLD[one] for one in untold)
        yield f'Not told, so within "nothing known" or the steps: {names}.'


def _baseline(told: Mapping[str, Any] | None) -> str:
    """What the steps that ran eagerly on purpose came to, and what compiling brought."""
    if told is None or told["seconds"] is None:
        return ""
    steps = counted(told["steps"], "step")
    said = f"Baseline: the first {steps} ran eagerly on purpose, {took(told['seconds'])} each"
    if (known := told["speed_up"]) is None:
        return f"{said}."
    paid = told["paid_back_at_step"]
    return f"{said}; {gained(known, paid)}."


def _compiling(report: Report) -> str:
    if not report.compile_seconds:
        return "nothing compiled" + " since it was attached" * bool(report.graphs_before)
    known = report.compilations
    graphs = f" in {counted(known, 'compilation')}" if known else ""
    parts = [(name, spent) for name, spent in report.phases.items() if spent >= _SEEN]
    phases = ", ".join(f"{name} {took(spent)}" for name, spent in parts)
    return f"{took(report.compile_seconds)}{graphs}{f' ({phases})' if phases else ''}"


def _median(seconds: float, median: float | None) -> str | None:
    """``None`` where it is no other, as far as a bin tells."""
    far = median is not None and abs(median - seconds) > HALF_A_BIN * median
    return took(median) if median is not None and far else None


def steady(report: Report) -> str:
    """The speed over the whole run, with its spread."""
    known = report.steady
    if known.seconds is None:
        return "not known, for no step was clean"
    length, median = took(known.seconds), _median(known.seconds, known.median)
    spread = [] if known.p99 is None else [f"99 % within {took(known.p99)}"]
    spread = [f"median {median}", *spread] if median and median != length else spread
    spread += [f"of {counted(known.count, 'clean step')}"] if known.count else []
    spread.insert(0, "whole run")
    of_rank = " a rank" if len(report.ranks) > 1 else ""
    parts = [f"{length} ({', '.join(spread)})"]
    for value, noun in (
        (report.tokens_per_second, "tokens"),
        (report.samples_per_second, "samples"),
    ):
        parts += [f"{amounts.rate(value)} {noun}/s{of_rank}"] if value else []
    parts += [f"MFU {amounts.percent(report.mfu_ratio)}"] if report.mfu_ratio else []
    parts += [f"{amounts.energy(report.joules_per_step)} a step"] if report.joules_per_step else []
    return "; ".join(parts)
