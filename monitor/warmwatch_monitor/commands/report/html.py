"""A document as one HTML file: no external requests, light and dark, printable.

The template engine escapes everything. The page's own content security policy allows no scripts and
no requests, and only its one style sheet, by digest.

Charts are SVG without scripts, also for paper. Colours are classes of the page's style sheet. Every
text passes ``escape``. Positions are percent of the width and texts have a fixed size, so that a
chart fits a phone.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from math import floor, inf, log10
from types import MappingProxyType

from markupsafe import Markup, escape

from warmwatch.shared.phrases import duration, short_place, took
from warmwatch.shared.values import PHASES
from warmwatch_monitor.commands.report import goodput as shares
from warmwatch_monitor.commands.report.compilations import reason_of
from warmwatch_monitor.commands.report.parts import Priced, Report
from warmwatch_monitor.figures.rank import SlowerPeriod
from warmwatch_monitor.model.run_summary import Compiled, RunSummary, Samples
from warmwatch_monitor.output.amounts import percent, slower_period
from warmwatch_monitor.output.document import Document
from warmwatch_monitor.output.html import read, template

_WIDTH = 100.0  # percent
_USUAL_PIXELS = 900
_PLOT = 110
_GAP_ROWS = 2.5  # a longer time without a row was not measured: no daemon ran
_MOST_TICKS = 4
_ROUND_TIMES = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 36000.0)
# of a power of ten: round tops of an axis, whose halves have two digits, as labels do
_FACTORS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
_BLOCK = 26  # height of a row of the icicle
_LEAST_LABEL = 4  # characters: a shorter label is useless
_STRIP = 8  # height of the phases above the plot of steps
_EDGE = 0.9
_LEAST = 0.06  # percent of the width of a bar: half a pixel
_CLASSES = {
    shares.CLEAN: "s-clean",
    shares.DATA: "s-data",
    shares.GAPS: "s-gaps",
    shares.STALLS: "s-stalls",
    shares.WARMUP: "s-warmup",
    shares.LATER: "s-later",
    shares.EVALUATION: "s-evaluation",
    shares.SAVING: "s-saving",
    shares.BEFORE: "s-before",
    shares.AFTER: "s-after",
    shares.NOTHING: "s-nothing",
}
_SIGN = 8.0  # width of a character, rounded up
_SWATCH = Markup(
    '<span><svg viewBox="0 0 1 1" aria-hidden="true"><rect class="{}" width="1" height="1"/></svg>'
    "{}</span>"
)


def goodput(report: Report) -> Markup | None:
    """One bar: where the run's time went. It is as wide as the page, on a phone too."""
    if report.goodput is None:
        return None
    parts, key, x = [], [], 0.0
    for share in report.goodput.shares:
        if share.ratio > 0:
            wide, kind = share.ratio * _WIDTH, _CLASSES[share.name]
            title = f"{share.name}: {took(share.seconds)}, {percent(share.ratio)}"
            parts.append(_bar(x, 0, wide, _BLOCK, kind, title))
            key.append((kind, f"{share.name} {percent(share.ratio)}"))
            x += wide
    return _svg(_BLOCK, "What the run's time went to", parts) + _key(key)


def icicle(report: Report, traced: Mapping[str, str]) -> Markup | None:
    """Compile time by function, below it by compilation, by phase, and the slowest kernels.

    A recompile links to its reason and remedy in the list of recompiles. The phases of a
    compilation link to its URL in ``traced``, if it has one there.
    """
    functions = [item for item in report.functions if item.seconds > 0]
    seconds = sum(item.seconds for item in functions)
    if not seconds:
        return None
    scale, x, parts = _WIDTH / seconds, 0.0, list[Markup]()
    groups = {
        (recompiled.function, recompiled.category, why): at
        for at, recompiled in enumerate(report.recompiled, 1)
        for why in recompiled.reasons or ("",)
    }
    for function in functions:
        name = short_place(function.name, function.file) if function.name else "(unknown)"
        parts += _block(x, 0, function.seconds * scale, "i-function", name, took(function.seconds))
        at = x
        for time in function.times:
            wide = (time.seconds or 0.0) * scale
            why = reason_of(time)
            group = groups.get((function.function, time.category or "", why))
            parts += _compilation(at, wide, name, time, group, traced.get(time.id or ""))
            at += wide
        x += function.seconds * scale
    used = {phase for item in functions for time in item.times for phase in time.phase_seconds}
    kinds = [("i-first", "compiled"), ("i-again", "recompiled")]
    kinds += [(phase, phase) for phase in PHASES if phase in used]
    kerneled = any(time.slowest_kernels for item in functions for time in item.times)
    kinds += [("i-kernel", "slowest kernels (several compile at a time)")] if kerneled else []
    text = "Compile time by function, compilation, phase and kernel"
    return _svg((3 + kerneled) * _BLOCK, text, parts) + _key(kinds)


def _compilation(
    x: float, wide: float, name: str, time: Priced, group: int | None, traced: str | None
) -> Iterator[Markup]:
    """One compilation, its phases below it, and its slowest kernels below them."""
    step = "" if time.step is None else f", step {time.step + 1}"
    why = time.plain or time.reason or time.category
    sentence = f"{name}{step}, {took(time.seconds or 0.0)}"
    sentence += f"; recompiled: {why}" if why else ""
    again = time.category is not None
    label = (why or "recompiled") if again else "first"
    plain = label.replace("`", "")
    kind = "i-again" if again else "i-first"
    block = _block(x, _BLOCK, wide, kind, plain, sentence, shows_end=bool(time.plain))
    yield _linked(f"#recompiles-{group}" if again and group is not None else None, block)
    phases = [(text, spent) for text in PHASES if (spent := time.phase_seconds.get(text))]
    whole = sum(seconds for _, seconds in phases)
    bars, at, within = list[Markup](), x, (x, wide)
    for phase, seconds in phases:
        part = wide * seconds / whole
        sentence = f"{name}{step}: {phase} {took(seconds)}"
        bars.append(_bar(at, 2 * _BLOCK, part, _BLOCK - 2, phase, sentence))
        within = (at, part) if phase == "kernel_compile" else within
        at += part
    yield _linked(traced, bars)
    yield from _kernels(*within, time)


def _kernels(x: float, wide: float, time: Priced) -> Iterator[Markup]:
    """The slowest kernels below the phase that compiled them, in proportion to each other."""
    whole = sum(seconds for _, seconds in time.slowest_kernels)
    for kernel, seconds in time.slowest_kernels:
        part = wide * seconds / whole if whole else 0.0
        yield from _block(x, 3 * _BLOCK, part, "i-kernel", kernel, took(seconds))
        x += part


def _linked(url: str | None, parts: Iterable[Markup]) -> Markup:
    drawn = Markup("").join(parts)
    return Markup('<a href="{}">{}</a>').format(url, drawn) if url else drawn


def _block(
    x: float, y: float, wide: float, kind: str, label: str, title: str, *, shows_end: bool = False
) -> Iterator[Markup]:
    """A bar, with its label if that fits; a narrow screen cuts it at the bar's end.

    ``shows_end``: of a label that does not fit; reasons of a function differ in their sizes, last.
    """
    yield _bar(x, y, wide, _BLOCK - 2, kind, f"{label}: {title}")
    room = int((wide / _WIDTH * _USUAL_PIXELS - 8) / _SIGN)
    if room >= _LEAST_LABEL:
        cut = f"…{label[1 - room :]}" if shows_end else f"{label[: room - 1]}…"
        shown = label if len(label) <= room else cut
        yield Markup(
            '<svg class="label" x="{:.2f}%" y="{}" width="{:.2f}%" height="{}">'
            '<text class="{}-text" x="4" y="17">{}</text></svg>'
        ).format(x, y, wide, _BLOCK, kind, shown)


def _axis(seconds: float, y: int) -> Iterator[Markup]:
    yield Markup('<line class="axis" x1="0" y1="{y}" x2="100%" y2="{y}"/>').format(y=y + 2)
    ticks = _ticks(seconds)
    whole = all(at < 600 or at % 60 == 0 for at in ticks)  # 1,000 s are not 17 min
    for at in ticks:
        anchor = "end" if at > _EDGE * seconds else "middle" if at else "start"
        label = duration(at) if whole else f"{at:.0f} s"
        yield Markup('<text class="quiet" x="{:.2f}%" y="{}" text-anchor="{}">{}</text>').format(
            at / seconds * _WIDTH, y + 16, anchor, label if at else "0"
        )


def _ticks(upto: float) -> list[float]:
    """Round times from 0 to ``upto``."""
    fine = (times * 10.0**power for power in range(-3, 2) for times in (1, 2, 5))
    days = (times * 86400.0 * 10**power for power in range(6) for times in (1, 2, 5))
    steps = (*(value for value in fine if value < 60), *_ROUND_TIMES, *days)
    step = next((value for value in steps if upto / value <= _MOST_TICKS), upto)
    return [round(at * step, 6) for at in range(int(upto / step) + 1)]


def round_up(value: float) -> float:
    """The smallest round number that is at least ``value``, as on the page."""
    power = 10.0 ** floor(log10(value))
    return next(item * power for item in _FACTORS if item * power >= value * 0.9999)


def _key(entries: Iterable[tuple[str, str]]) -> Markup:
    """The legend, in as many lines as the screen needs."""
    swatches = (_SWATCH.format(kind, text) for kind, text in entries)
    return Markup('<p class="key">{}</p>').format(Markup("\n").join(swatches))


def _bar(x: float, y: float, wide: float, high: float, kind: str, title: str) -> Markup:
    return Markup(
        '<rect class="{}" x="{:.2f}%" y="{}" width="{:.2f}%" height="{}"><title>{}</title></rect>'
    ).format(kind, x, y, max(_LEAST, wide), high, title.replace("`", ""))  # a title is plain text


def _svg(height: int, words: str, parts: Sequence[Markup], kind: str = "bars") -> Markup:
    drawn = Markup("\n").join(parts)
    role = "group" if "<a " in drawn else "img"  # screen readers find no link in an image
    return Markup('<svg class="{}" height="{}" role="{}" aria-label="{}">{}</svg>').format(
        kind, height, role, words, drawn
    )


def samples(summary: RunSummary, report: Report) -> list[tuple[str, Markup]]:
    """Time series from a daemon: steps of the rank and its GPUs' power; empty without a daemon.

    All begin with the run, also if the daemon began later. Slower periods are shaded.
    """
    shown = next((item for item in summary.ranks if item.rank == report.rank), None)
    shades = "compilation, by phase" + (", and steps slower than before" if report.slower else "")
    series: list[tuple[str, Samples, str]] = []
    if shown and shown.samples:
        title = f"Length of a step of rank {shown.rank}; shaded: {shades}"
        series.append((title, shown.samples, "step_seconds"))
    # a history has no index of a GPU
    ranks = {uuid: rank.rank for rank in summary.ranks for uuid in rank.answer["gpus"]}
    for uuid, gpu in sorted(summary.gpu_samples.items(), key=lambda item: ranks.get(item[0], 0)):
        of_rank = f", rank {ranks[uuid]}" if uuid in ranks else ""
        series.append((f"Power of {uuid}{of_rank}", gpu, "power_watts"))
    measured = [seen for _, seen, _ in series if seen.epochs]
    if not measured:
        return []
    begin = min([summary.began, *(seen.epochs[0] for seen in measured)])
    axis = begin, max(max(seen.epochs[-1] - begin, seen.seconds) for seen in measured)
    before = _unsampled(shown.compiled, shown.samples) if shown and shown.samples else []
    charts = {
        name: _plot(name, seen, column, axis, report.slower, before)
        for name, seen, column in series
    }
    return [(name, chart) for name, chart in charts.items() if chart is not None]


def _unsampled(compiled: Iterable[Compiled], seen: Samples) -> list[tuple[float, float]]:
    """When it compiled before the first sample, from the journal."""
    first = seen.epochs[0] - seen.seconds if seen.epochs else 0.0
    times = ((each.ended - (each.seconds or 0.0), min(each.ended, first)) for each in compiled)
    return [(began, ended) for began, ended in times if began < ended]


def _plot(
    name: str,
    seen: Samples,
    column: str,
    axis: tuple[float, float],
    slower: Sequence[SlowerPeriod],
    before: Sequence[tuple[float, float]],
) -> Markup | None:
    """``axis``: its begin and its seconds."""
    if column not in seen.columns:
        return None
    curves = list(_curves(seen, column, max((ended for _, ended in before), default=-inf)))
    values = [value for curve in curves for _, value in curve]
    if len(values) < 2 or not max(values):
        return None
    (begin, seconds), top = axis, round_up(float(max(values)))
    scale, high = _WIDTH / seconds, _PLOT / top

    def shade(since: float, until: float, height: float, kind: str, title: str) -> Markup:
        since = max(begin, since)
        return _bar((since - begin) * scale, 0, (until - since) * scale, height, kind, title)

    labels = [
        Markup('<text class="quiet" x="{}" y="{:.0f}" text-anchor="end">{}</text>').format(
            -8, max(12.0, _PLOT * (1 - share)), _words(column, top * share)
        )
        for share in (1.0, 0.5, 0.0)
    ]
    strips = list(_phases(seen.epochs, seen.columns.get("phase", ()), seen.seconds))
    compiling = [*(before if column == "step_seconds" else ()), *(strip[:2] for strip in strips)]
    shades = [
        *(
            shade(*part, _PLOT, "slower", f"slower than before {slower_period(period)}")
            for period in slower
            for part in _within(period, begin, begin + seconds)
        ),
        *(shade(*part, _PLOT, "compiles", "compiling") for part in _joined(compiling)),
        *(shade(since, until, _STRIP, of, f"compiling, {of}") for since, until, of in strips),
    ]
    polylines = [
        Markup('<polyline class="curve" points="{}"/>').format(
            " ".join(f"{(x - begin) * scale:.2f},{_PLOT - y * high:.1f}" for x, y in curve)
        )
        for curve in curves
    ]
    drawn = Markup(
        '<svg viewBox="0 0 100 {}" preserveAspectRatio="none" width="100%" height="{}">{}</svg>'
    ).format(_PLOT, _PLOT, Markup("\n").join(polylines))
    parts = [*labels, *shades, drawn, *_axis(seconds, _PLOT)]
    return _svg(_PLOT + 24, str(escape(name)), parts, "plot")


def _words(column: str, value: float) -> str:
    if not value:
        return "0"
    return took(value) if column == "step_seconds" else f"{value:.3g} W"


def _within(period: SlowerPeriod, begin: float, end: float) -> Iterator[tuple[float, float]]:
    """The part of a period between two moments; none if its begin is not known."""
    if period.began_at is None:
        return
    began, ended = max(begin, period.began_at), min(end, period.ended_at or end)
    if began < ended:
        yield began, ended


def _phases(
    epochs: Sequence[float], phases: Sequence[float | str | None], seconds: float
) -> Iterator[tuple[float, float, str]]:
    """Intervals of one phase: begin, end, phase."""
    began: tuple[float, str] | None = None
    last = 0.0
    for at, phase in zip(epochs, phases, strict=False):
        name = phase if isinstance(phase, str) and phase in PHASES else None
        if began and name != began[1]:
            yield began[0], last, began[1]
            began = None
        if name and not began:
            began = at - seconds, name
        last = at
    if began:
        yield began[0], last, began[1]


def _joined(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """In order, and those that meet as one: shades that overlap would draw a seam."""
    joined: list[tuple[float, float]] = []
    for began, ended in sorted(intervals):
        if joined and began <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(ended, joined[-1][1])
        else:
            joined.append((began, ended))
    return joined


def _curves(seen: Samples, column: str, compiled_at: float) -> Iterator[list[tuple[float, float]]]:
    """Continuous pieces without gaps; without steps during which something compiled.

    ``compiled_at``: the end of the last compilation before the samples.
    """
    stretch: list[tuple[float, float]] = []
    values = seen.columns[column]
    phases = seen.columns.get("phase") if column == "step_seconds" else None
    for at, value, phase in zip(seen.epochs, values, phases or [None] * len(values), strict=True):
        number = float(value) if isinstance(value, int | float) else None
        if phases:
            compiled_at = at if phase is not None else compiled_at
            # a step often ends a sample after its compilation
            number = number if number is not None and at - number >= compiled_at else None
        if stretch and (number is None or at - stretch[-1][0] > _GAP_ROWS * seen.seconds):
            yield stretch
            stretch = []
        if number is not None:
            stretch.append((at, number))
    if stretch:
        yield stretch


_HERE = "warmwatch_monitor.commands.report"
_PAGE = "warmwatch_monitor.page"
_COLOURS_END = "* { box-sizing"


def html(
    document: Document,
    report: Report,
    summary: RunSummary,
    traced: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The HTML page of a report. Texts are printable.

    ``traced``: URLs by compile id, which the chart of compile time links to.
    """
    drawn = {
        "goodput": goodput(report),
        "timeline": icicle(report, traced),
    }
    return rendered(document, drawn, samples(summary, report))


def rendered(
    document: Document, drawn: dict[str, Markup | None], more: Sequence[tuple[str, Markup]] = ()
) -> str:
    """``drawn``: charts by the name in a section. ``more``: charts at the end."""
    style = _style()
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    return template(_HERE, "report.html").render(
        document=document,
        drawn=drawn,
        more=more,
        policy=policy,
        style=Markup(style),  # noqa: S704 - our own file, without any input
    )


@cache
def _style() -> str:
    """The page's colours and the layout of a report. Print always uses light colours."""
    colours = read(_PAGE, "page.css").partition(_COLOURS_END)[0]
    screen = colours.replace("@media (", "@media screen and (")
    return screen + read(_HERE, "report.css")
