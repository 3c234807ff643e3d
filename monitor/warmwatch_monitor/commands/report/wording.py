"""A report's page in words: remedies, costs, ranks, where the time went. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from warmwatch.shared.phrases import counted, took
from warmwatch.shared.states import State
from warmwatch_monitor.commands.report.goodput import ALL, CLEAN, DATA, EVALUATION, GAPS, NOTHING
from warmwatch_monitor.commands.report.parts import Cost, Goodput, Remedy, Report
from warmwatch_monitor.commands.report.wording_compilations import (
    breaks,
    changes,
    compilations,
    failure,
    recompiles,
    timeline,
)
from warmwatch_monitor.figures.training import FORMULA, Baseline
from warmwatch_monitor.model.figures import HALF_A_BIN
from warmwatch_monitor.model.journal import Wrapping
from warmwatch_monitor.output import amounts
from warmwatch_monitor.output.amounts import gained, if_known, limited, moment, slower_period
from warmwatch_monitor.output.document import Document, Item, Section, table
from warmwatch_monitor.status.words.progress import baseline_measured
from warmwatch_monitor.status.words.requested import OFF
from warmwatch_monitor.status.words.states import ended_in_words

_NEARLY = 0.95  # of the compile time


def remedies(report: Report) -> Section | None:
    """Remedies, most expensive first."""
    if not report.do:
        return None
    several = sum(bool(remedy.saves) for remedy in report.do) > 1
    remarks = ("Each saving is a maximum for that remedy alone.",) if several else ()
    items = tuple(Item(remedy_head(remedy), (remedy.what,)) for remedy in report.do)
    return Section("What to do first", items=items, remarks=remarks)


def remedy_head(remedy: Remedy) -> str:
    """What it is about and what it saves."""
    saves = f": the remedy would have saved up to {took(remedy.saves)}" if remedy.saves else ""
    return f"{remedy.about}{saves}"


def costs(report: Report) -> Section | None:
    """Compile costs; omits columns without any value."""
    if not report.costs:
        return None
    names = ("what", "seconds>", "GPU-seconds>", "energy>")
    shown = table(names, list(map(_cost, report.costs)), sparse=True)
    return Section("What compiling cost", table=shown, remarks=tuple(_remarks(report)))


def _cost(cost: Cost) -> tuple[str, ...]:
    what = "all compiling" if cost.what == ALL else cost.what
    energy = if_known(amounts.energy, cost.joules)
    return (
        what if cost.steps is None else f"{what}, {counted(cost.steps, 'step')}",
        took(cost.seconds),
        if_known(amounts.number, cost.gpu_seconds),
        f"about {energy}" if cost.estimated else energy,
    )


def _remarks(report: Report) -> Iterator[str]:
    last = report.costs[-1]
    if len(report.ranks) > 1:
        yield "Seconds: of the rank that compiled longest. Everything else: the sum of all ranks."
    if len(report.costs) > 1:
        yield "Warm-up: elapsed time, with its steps. All compiling: compile time only."
    if last.gpu_seconds is None:
        yield "No GPU was recorded, so there are no GPU-seconds and no energy."
    elif last.joules is None:
        yield (
            "Energy is not known: only a daemon (`warmwatch serve`) measures it, for the history, "
            "which `--dir` does not read."
        )
    elif last.covered is not None and last.covered < _NEARLY:
        share = amounts.percent(last.covered)
        yield f"The energy is that of {share} of the compile time: the monitor started late."
    if any(cost.estimated for cost in report.costs):
        yield "Energy was measured for all compiling and split by compile time."


_RANKS = 16
_NAMES = ("rank>", "state", "compiled>", "warm-up>", "recompiles>", "steps>", "steady step>")


def ranks(report: Report) -> Section | None:
    """The ranks, slowest first, and their differences."""
    if len(report.ranks) < 2:
        return None
    rows = [
        (
            str(line.rank),
            ended_in_words(line.state, line.how),
            took(line.compile_seconds),
            if_known(took, line.warmup_seconds),
            if_known(str, line.recompiles),
            str(line.steps),
            if_known(took, line.step_seconds),
        )
        for line in report.ranks[:_RANKS]
    ]
    more = counted(len(report.ranks) - len(rows), "more rank")
    remark = f"{more}, which compiled no longer than these."
    return Section(
        "Ranks, the longest compile time first",
        table(_NAMES, rows),
        tuple(map(Item, report.differences or ("the ranks did the same",))),
        (remark,) if len(report.ranks) > len(rows) else (),
    )


_SEEN = 0.0005  # seconds: less is shown as nothing
_ROUNDED = 0.005  # of a figure: less does not show in its three digits
_NOT_REPORTED = {
    CLEAN: "how long the clean steps took together",
    EVALUATION: "evaluations (frameworks report them, or warmwatch.evaluating())",
}
_HARDLY = 0.02  # of a steady step
_HOUR = 3600


def time_spent(report: Report) -> Section:
    """The shares of the time, and the most important durations."""
    rows = [
        (share.name, took(share.seconds), amounts.percent(share.ratio))
        for share in (report.goodput.shares if report.goodput else ())
        if share.seconds >= _SEEN or share.name == CLEAN
    ]
    shown, remarks = table(("what", "took>", "share>"), rows), tuple(_durations(report))
    return Section("Where the time went", shown, remarks=remarks, chart="goodput" if rows else None)


def _durations(report: Report) -> Iterator[str]:
    if report.rank is None:
        yield "No rank was recorded, so nothing more is known."
        return
    if len(report.ranks) > 1:
        longest = ", which compiled longest" if report.compile_seconds else ""
        yield f"This is rank {report.rank}{longest}."
    if report.first_step_seconds is not None:
        yield f"First step: {took(report.first_step_seconds)}."
    yield f"Steady step: {steady(report)}."
    whole, clean = report.whole_step_seconds, report.steady.seconds
    if whole is not None and clean is not None and whole >= (1 + _HARDLY) * clean:
        hourly = f"{took(whole)} a step, {amounts.number(round(_HOUR / whole))} steps an hour"
        yield f"With evaluations, saves, recompiles and all else since the warm-up: {hourly}."
    for period in report.slower:
        yield f"Slower than before {slower_period(period)}."
    if report.limited_by is not None:
        yield f"Recent speed {limited(report.limited_by)}."
    if eager := _baseline(report.baseline):
        yield eager
    yield f"Compiling: {_compiling(report)}."
    if report.goodput is not None:
        yield from _counted_elsewhere(report, report.goodput)


def _counted_elsewhere(report: Report, goodput: Goodput) -> Iterator[str]:
    """Durations of other views that are in several rows of the table, or that none has."""
    if (compiled := goodput.evaluation_compile_seconds) >= _SEEN:
        share = sum(item.seconds for item in goodput.shares if item.name == EVALUATION)
        within = f"{took(compiled)} of it counts as compiling"
        yield f"Evaluations: {took(share + compiled)}; {within}."
    paused, warmup = goodput.warmup_pause_seconds, report.warmup_seconds or 0.0
    if paused >= max(_SEEN, _ROUNDED * warmup):
        within = f"{took(paused)} of it counts as evaluation or saving"
        yield f"Warm-up: {took(warmup)} by the clock; {within}."
    if goodput.untold and not report.living:
        names = "; ".join(_NOT_REPORTED.get(name, name) for name in goodput.untold)
        seconds = {item.name: item.seconds for item in goodput.shares}
        gaps = f", {GAPS}" if seconds[GAPS] >= _SEEN else ""
        yield f"Not measured, so within {CLEAN}{gaps} or {NOTHING}: {names}."


def _baseline(baseline: Baseline | None) -> str:
    """The eager baseline, and the gain from compiling."""
    if baseline is None or not (measured := baseline_measured(baseline)):
        return ""
    speed_up, paid_back_at = baseline.speed_up, baseline.paid_back_at_step
    gain = "" if speed_up is None else f"; {gained(speed_up, paid_back_at)}"
    return f"Baseline: {measured}{gain}."


def _compiling(report: Report) -> str:
    if not report.compile_seconds:
        return "no compile event" + " since it was attached" * bool(report.graphs_before)
    graphs = f" in {compilations(report)}" if report.compilations else ""
    parts = [(name, spent) for name, spent in report.phases.items() if spent >= _SEEN]
    phases = ", ".join(f"{name} {took(spent)}" for name, spent in parts)
    return f"{took(report.compile_seconds)}{graphs}{f' ({phases})' if phases else ''}"


def steady(report: Report) -> str:
    """The speed over the whole run, with its spread."""
    steady, worth = report.steady, report.worth
    if steady.seconds is None:
        was_warm = report.warmup_seconds is not None
        if not report.steps and (was_warm or report.state == State.FINISHED.value):  # a server
            return "not known: no steps were marked (an optimizer marks one, or warmwatch.step())"
        return "not known: no step was clean"
    length = took(steady.seconds)
    spread = ["whole run"]
    if steady.count:
        spread = [f"whole run: {counted(steady.count, 'clean step')}{_between(report)}"]
    median = steady.median or steady.seconds
    if abs(median - steady.seconds) > HALF_A_BIN * median and took(median) != length:
        length = f"{length} on average"
        spread.append(f"median {took(median)}")
    if steady.p99 is not None:
        spread.append(f"99 % within {took(steady.p99)}")
    parts = [f"{length} ({', '.join(spread)})"]
    rates = worth and amounts.rates(
        worth.tokens_per_second,
        worth.samples_per_second,
        worth.mfu_ratio,
        estimated=worth.estimated and worth.formula == FORMULA,
        dtypes=worth.dtypes,
    )
    if rates:
        parts.append(f"each rank {rates}" if len(report.ranks) > 1 else rates)
    if report.joules_per_step:
        parts.append(f"{amounts.energy(report.joules_per_step)} a step")
    return "; ".join(parts)


def _between(report: Report) -> str:
    """What the length of a step includes, and the row of the clean steps does not."""
    shares = report.goodput.shares if report.goodput else ()
    spent = {share.name: share.seconds for share in shares}
    steps = (report.steady.seconds or 0.0) * (report.steady.count or 0)
    if spent.get(CLEAN, steps) >= (1 - _HARDLY) * steps:
        return ""
    names = {DATA: "waits for data", GAPS: "gaps"}
    between = [text for name, text in names.items() if spent[name] >= _HARDLY * steps]
    return f" with the {' and '.join(between)} between them" if between else ""


# A non-empty cache may have no entry for this run, so it is not called warm.
_AT_START = {"warm": "not empty at the start", "cold": "empty at the start"}


def page(report: Report) -> Document:
    sections = (
        *(failure, time_spent, remedies, changes, recompiles),
        *(costs, timeline, breaks, ranks),
    )
    title = f"Warmwatch report: {report.run}"
    return replace(_document(report, sections), title=title, facts=tuple(facts(report)))


def short(report: Report) -> Document:
    """The short report at the end of a launch, without details."""
    return _document(report, (failure, time_spent, remedies, recompiles, ranks))


def _document(report: Report, sections: Sequence[Callable[[Report], Section | None]]) -> Document:
    return Document(
        title=report.run,
        state=report.state,
        answer=answer(report),
        warnings=report.doubts,
        sections=tuple(section for make in sections if (section := make(report)) is not None),
    )


def answer(report: Report) -> str:
    """The sentence, followed by findings that the sentence of an ended run lacks."""
    parts = [report.summary or f"{report.run}: {report.state}"]
    if report.living:
        return parts[0]
    parts += [text for text in report.conditions.values() if text not in report.summary]
    if not report.conditions and not report.compile_seconds and report.steps:
        if report.graphs_before:
            before = counted(report.graphs_before, "graph")
            parts.append(f"nothing was compiled since it was attached; {before} before that")
        elif report.precompiled:
            parts.append(f"it ran ahead-of-time compiled code ({', '.join(report.precompiled)})")
        else:
            parts.append("its process compiled nothing: it ran eagerly")
    return "; ".join(parts)


def facts(report: Report) -> Iterator[tuple[str, str]]:
    """The provenance of the run."""
    what = report.what
    yield "began", moment(report.began)
    if report.ended is not None:
        yield "ended", f"{moment(report.ended)}, after {took(report.ended - report.began)}"
    else:
        when = "so far" if report.living else "as last seen"
        yield when, f"{took(max(0.0, report.seen - report.began))}, at {moment(report.seen)}"
    versions = (
        *(("CUDA", what.cuda), ("Triton", what.triton)),
        *(("driver", what.driver), ("Python", what.python)),
    )
    others = ", ".join(f"{name} {version}" for name, version in versions if version)
    off = [f"turned off by {OFF[what.disabled]}"] if what.disabled in OFF else []
    compiled = "; ".join([*dict.fromkeys(map(_wrapping, what.wrappings)), *off])
    values = {
        "host": report.host,
        "script": _with(what.script, what.commit and what.commit[:12]),
        "ranks": str(report.world_size) if (report.world_size or 1) > 1 else None,
        "GPUs": models(what.gpus),
        "torch": _with(what.torch, others),
        "torch.compile": compiled or what.disabled,
        "caches": _caches(report),
    }
    yield from ((name, value) for name, value in values.items() if value)


def _with(text: str | None, more: str | None) -> str | None:
    return f"{text} ({more})" if text and more else text


def _caches(report: Report) -> str:
    """The state of the caches at the begin, and the hits of this run."""
    caches = report.what.caches.items()
    states = ", ".join(f"{name} {_AT_START.get(state, state)}" for name, state in caches)
    hits = sum(function.cache_hits for function in report.functions)
    known = hits + sum(function.cache_misses for function in report.functions)
    cached = f"{hits} of {counted(known, 'compilation')} cached"
    return f"{states}; {cached}" if states and known else states


def models(gpus: tuple[str, ...]) -> str:
    """``8 x NVIDIA H100``."""
    counts = Counter(gpus).items()
    return ", ".join(f"{many} x {name}" if many > 1 else name for name, many in counts)


def _wrapping(call: Wrapping) -> str:
    parts = [call.mode]
    parts += [call.backend] if call.backend != "inductor" else []
    parts += ["fullgraph"] if call.fullgraph else []
    parts += [] if call.dynamic is None else [f"dynamic={call.dynamic}"]
    parts += [name.partition("=")[0] for name in call.options]
    return ", ".join(parts)
