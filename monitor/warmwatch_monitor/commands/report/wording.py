"""A report's page in words: remedies, costs, ranks, where the time went. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch.shared.phrases import counted, took
from warmwatch_monitor.commands.report.costs import ALL
from warmwatch_monitor.commands.report.goodput import CLEAN, DATA, EVALUATION
from warmwatch_monitor.commands.report.parts import Cost, Goodput, RankLine, Remedy, Report
from warmwatch_monitor.commands.report.wording_compilations import (
    again,
    broken,
    compilations,
    failure,
    since_last_time,
    timeline,
)
from warmwatch_monitor.figures.training import FORMULA
from warmwatch_monitor.model import HALF_A_BIN
from warmwatch_monitor.model.journal import Wrapping
from warmwatch_monitor.output import amounts
from warmwatch_monitor.output.amounts import gained, if_known, limited, moment, slower_period
from warmwatch_monitor.output.document import Document, Item, Section, table
from warmwatch_monitor.status.schema.rank import Baseline, Worth
from warmwatch_monitor.status.words.progress import baseline_measured


def to_do(report: Report) -> Section | None:
    """Remedies, most expensive first."""
    if not report.do:
        return None
    several = sum(bool(remedy.saves) for remedy in report.do) > 1
    remarks = ("Each saving is a maximum for that remedy alone.",) if several else ()
    return Section(
        "What to do first", items=tuple(_item(remedy) for remedy in report.do), remarks=remarks
    )


def _item(remedy: Remedy) -> Item:
    saves = f": the remedy would have saved up to {took(remedy.saves)}" if remedy.saves else ""
    return Item(f"{remedy.about}{saves}", (remedy.what,))


_WHAT = {ALL: "all compiling"}
_NEARLY = 0.95


def cost(report: Report) -> Section | None:
    """Compile costs; omits columns without any value."""
    if not report.costs:
        return None
    names = ("what", "seconds>", "GPU-seconds>", "energy>")
    rows = [tuple(_cost(cost)) for cost in report.costs]
    remarks = tuple(_remarks(report))
    return Section("What compiling cost", table=table(names, rows, sparse=True), remarks=remarks)


def _cost(cost: Cost) -> Iterator[str]:
    steps = f", {counted(cost.steps, 'step')}" if cost.steps is not None else ""
    yield f"{_WHAT.get(cost.what, cost.what)}{steps}"
    yield took(cost.seconds)
    yield if_known(amounts.number, cost.gpu_seconds)
    about = "about " if cost.estimated else ""
    yield if_known(lambda joules: f"{about}{amounts.energy(joules)}", cost.joules)


def _remarks(report: Report) -> Iterator[str]:
    last = report.costs[-1]
    if len(report.ranks) > 1:
        yield "Seconds are of the slowest rank; everything else is the sum of all ranks."
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
        yield f"The energy is that of {share} of the compile time: the monitor came late."
    if any(cost.estimated for cost in report.costs):
        yield "Energy was measured for all compiling and split by compile time."


_RANKS = 16
_NAMES = ("rank>", "state", "compiled>", "warm-up>", "recompiles>", "steps>", "steady step>")


def ranks(report: Report) -> Section | None:
    """The ranks, slowest first, and their differences."""
    if len(report.ranks) < 2:
        return None
    rows = [_row(rank) for rank in report.ranks[:_RANKS]]
    more = len(report.ranks) - len(rows)
    differing = [Item(text) for text in report.differences] or [Item("the ranks did the same")]
    remarks = (
        (f"{counted(more, 'more rank')}, which compiled no longer than these.",) if more else ()
    )
    return Section("Ranks, the slowest first", table(_NAMES, rows), tuple(differing), remarks)


def _row(line: RankLine) -> tuple[str, ...]:
    return (
        str(line.rank),
        line.state,
        took(line.compile_seconds),
        if_known(took, line.warmup_seconds),
        if_known(str, line.recompiles),
        str(line.steps),
        if_known(took, line.step_seconds),
    )


_SEEN = 0.0005  # seconds: less is shown as nothing
_NOT_REPORTED = {
    CLEAN: "how long the clean steps took together",
    DATA: "waiting for data",
    EVALUATION: "evaluations (frameworks report them, or warmwatch.evaluating())",
}


_HARDLY = 0.02  # of a steady step
_HOUR = 3600


def where(report: Report) -> Section:
    """The shares of the time, and the most important durations."""
    shares = report.goodput.shares if report.goodput else ()
    rows = [
        (share.name, took(share.seconds), amounts.percent(share.ratio))
        for share in shares
        if share.seconds >= _SEEN or share.name == CLEAN
    ]
    shown = table(("what", "took>", "share>"), rows)
    remarks = tuple(_lengths(report))
    return Section("Where the time went", shown, remarks=remarks, chart="goodput" if rows else None)


def _lengths(report: Report) -> Iterator[str]:
    if report.rank is None:
        yield "No rank was recorded, so nothing more is known."
        return
    if len(report.ranks) > 1:
        yield f"This is rank {report.rank}, which compiled longest."
    if report.first_step_seconds is not None:
        yield f"First step: {took(report.first_step_seconds)}."
    yield f"Steady step: {steady(report)}."
    if whole := _whole_step(report):
        yield whole
    for period in report.slower:
        yield f"Slower than before {slower_period(period)}."
    if (limit := report.limited_by) is not None:
        yield f"Recent speed {limited(limit)}."
    if eager := _baseline(report.baseline):
        yield eager
    yield f"Compiling: {_compiling(report)}."
    if report.goodput is not None and report.goodput.evaluation_compile_seconds >= _SEEN:
        yield _evaluations(report.goodput)
    if report.goodput is not None and report.goodput.warmup_pause_seconds >= _SEEN:
        paused = took(report.goodput.warmup_pause_seconds)
        length = took(report.warmup_seconds or 0.0)
        yield f"Warm-up: {length} by the clock; {paused} of it counts as evaluation or saving."
    if report.goodput is not None and (untold := report.goodput.untold) and not report.living:
        names = "; ".join(_NOT_REPORTED[name] for name in untold)
        yield f"Not measured, so within clean steps or unaccounted: {names}."


def _whole_step(report: Report) -> str | None:
    """What a step really takes; ``None`` if that is hardly more than a steady one."""
    whole, clean = report.whole_step_seconds, report.steady.seconds
    if whole is None or clean is None or whole < (1 + _HARDLY) * clean:
        return None
    hourly = amounts.number(round(_HOUR / whole))
    rest = "With evaluations, saves, recompiles and all else since the warm-up"
    return f"{rest}: {took(whole)} a step, {hourly} steps an hour."


def _evaluations(goodput: Goodput) -> str:
    """Their whole time, which is that of the other views, and the part that is in another row."""
    compiled = goodput.evaluation_compile_seconds
    share = sum(item.seconds for item in goodput.shares if item.name == EVALUATION)
    return f"Evaluations: {took(share + compiled)}; {took(compiled)} of it counts as compiling."


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


def _median(seconds: float, median: float | None) -> str | None:
    """``None`` if it is equal, to the accuracy of a bin."""
    far = median is not None and abs(median - seconds) > HALF_A_BIN * median
    return took(median) if median is not None and far else None


def _throughput(worth: Worth) -> str:
    return amounts.rates(
        worth.tokens_per_second,
        worth.samples_per_second,
        worth.mfu_ratio,
        estimated=worth.estimated and worth.formula == FORMULA,
        dtypes=worth.dtypes,
    )


def steady(report: Report) -> str:
    """The speed over the whole run, with its spread."""
    steady = report.steady
    if steady.seconds is None:
        return "not known: no step was clean"
    length, median = took(steady.seconds), _median(steady.seconds, steady.median)
    spread = [] if steady.p99 is None else [f"99 % within {took(steady.p99)}"]
    if median and median != length:
        length, spread = f"{length} on average", [f"median {median}", *spread]
    whole = f"whole run: {counted(steady.count, 'clean step')}" if steady.count else "whole run"
    parts = [f"{length} ({', '.join([whole, *spread])})"]
    if report.worth and (rates := _throughput(report.worth)):
        parts.append(f"each rank {rates}" if len(report.ranks) > 1 else rates)
    parts += [f"{amounts.energy(report.joules_per_step)} a step"] if report.joules_per_step else []
    return "; ".join(parts)


# A non-empty cache may have no entry for this run, so it is not called warm.
_WERE = {"warm": "not empty at the start", "cold": "empty at the start"}


def page(report: Report) -> Document:
    return Document(
        title=f"Warmwatch report: {report.run}",
        state=report.state,
        answer=answer(report),
        warnings=report.doubts,
        facts=tuple(facts(report)),
        sections=tuple(section for section in _sections(report) if section is not None),
    )


def short(report: Report) -> Document:
    """The short report at the end of a launch, without details."""
    parts = (failure(report), where(report), to_do(report), again(report), ranks(report))
    return Document(
        title=report.run,
        state=report.state,
        answer=answer(report),
        warnings=report.doubts,
        sections=tuple(section for section in parts if section is not None),
    )


def _sections(report: Report) -> Iterator[Section | None]:
    yield failure(report)
    yield where(report)
    yield to_do(report)
    yield since_last_time(report)
    yield again(report)
    yield cost(report)
    yield timeline(report)
    yield broken(report)
    yield ranks(report)


def answer(report: Report) -> str:
    """The sentence, followed by findings that the sentence of an ended run lacks."""
    parts = [report.summary or f"{report.run}: {report.state}"]
    if not report.living:
        parts += [text for text in report.conditions.values() if text not in report.summary]
        if not report.conditions and not report.compile_seconds and report.steps:
            before = counted(report.graphs_before or 0, "graph")
            parts.append(
                f"nothing was compiled since it was attached; {before} before that"
                if report.graphs_before
                else f"it ran ahead-of-time compiled code ({', '.join(report.precompiled)})"
                if report.precompiled
                else "its process compiled nothing: it ran eagerly"
            )
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
    for name, value in (
        ("host", report.host),
        (
            "script",
            f"{what.script} ({what.commit[:12]})" if what.script and what.commit else what.script,
        ),
        ("ranks", str(report.world_size) if (report.world_size or 1) > 1 else None),
        ("GPUs", models(what.gpus)),
        ("torch", _versions(report)),
        (
            "torch.compile",
            "; ".join(dict.fromkeys(map(_wrapping, what.wrappings))) or what.disabled,
        ),
        ("caches", _caches(report)),
    ):
        if value:
            yield name, value


def _caches(report: Report) -> str:
    """The state of the caches at the begin, and the hits of this run."""
    were = ", ".join(
        f"{name} {_WERE.get(state, state)}" for name, state in report.what.caches.items()
    )
    hits = sum(function.cache_hits for function in report.functions)
    lookups = hits + sum(function.cache_misses for function in report.functions)
    return f"{were}; {hits} of {counted(lookups, 'lookup')} hit" if were and lookups else were


def models(gpus: tuple[str, ...]) -> str | None:
    """``8 x NVIDIA H100``."""
    counts = {name: gpus.count(name) for name in dict.fromkeys(gpus)}
    return (
        ", ".join(f"{many} x {name}" if many > 1 else name for name, many in counts.items()) or None
    )


def _versions(report: Report) -> str | None:
    what = report.what
    pairs = (
        ("CUDA", what.cuda),
        ("Triton", what.triton),
        ("driver", what.driver),
        ("Python", what.python),
    )
    more = ", ".join(f"{name} {value}" for name, value in pairs if value)
    return f"{what.torch}{f' ({more})' if more else ''}" if what.torch else None


def _wrapping(call: Wrapping) -> str:
    parts = [call.mode]
    parts += [call.backend] if call.backend != "inductor" else []
    parts += ["fullgraph"] if call.fullgraph else []
    parts += [] if call.dynamic is None else [f"dynamic={call.dynamic}"]
    parts += [name.partition("=")[0] for name in call.options]
    return ", ".join(parts)
