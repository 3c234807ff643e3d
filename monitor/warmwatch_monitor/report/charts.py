"""A report's charts as SVG, without scripts, also for paper. Pure.

Colours are classes of the page's style sheet. Every text passes ``escape``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from warmwatch.shared.phrases import step_length
from warmwatch_monitor.model import PHASES
from warmwatch_monitor.model.run_summary import RunSummary, Samples
from warmwatch_monitor.output.amounts import percent, took
from warmwatch_monitor.output.wording import slower_period
from warmwatch_monitor.report import goodput as shares
from warmwatch_monitor.report.parts import Priced, Report
from warmwatch_monitor.report.strips import labelled

_WIDTH, _LABEL, _LINE = 900, 70, 20
_PLOT = 110
_BLOCK = 26  # height of a row of the icicle
_LEAST_LABEL = 4  # characters: a shorter label is useless
_STRIP = 8  # height of the phases above the plot of steps
_EDGE = 0.9
_CLASSES = {
    shares.CLEAN: "s-clean",
    shares.DATA: "s-data",
    shares.GAPS: "s-gaps",
    shares.STALLS: "s-stalls",
    shares.WARMUP: "s-warmup",
    shares.RECOMPILES: "s-recompiles",
    shares.EVALUATION: "s-evaluation",
    shares.SAVING: "s-saving",
    shares.BEFORE: "s-before",
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
    for one in report.goodput.shares:
        if one.ratio > 0:
            wide, kind = one.ratio * _WIDTH, _CLASSES[one.name]
            title = f"{one.name}: {took(one.seconds)}, {percent(one.ratio)}"
            parts.append(_bar(x, 0, wide, _BLOCK, kind, title))
            key.append(_SWATCH.format(kind, f"{one.name} {percent(one.ratio)}"))
            x += wide
    return Markup(
        '<svg class="bar" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="What the run\'s time went to">{}</svg><p class="key">{}</p>'
    ).format(_WIDTH, _BLOCK, Markup("\n").join(parts), Markup("\n").join(key))


def icicle(report: Report, traced: Mapping[str, str]) -> Markup | None:
    """Compile time by function, below it by compilation, by phase, and the slowest kernels.

    A recompile links to its reason and remedy in the list of recompiles, and the phases of a
    compilation to its URL in ``traced``, if it has one there.
    """
    functions = [one for one in report.functions if one.seconds > 0]
    seconds = sum(one.seconds for one in functions)
    if not seconds:
        return None
    scale, x, parts = _WIDTH / seconds, 0.0, list[Markup]()
    groups = {
        (one.name, one.file, one.line, one.category): at
        for at, one in enumerate(report.recompiled, 1)
    }
    for one in functions:
        name = labelled(one, "(unknown)")
        parts += _block(x, 0, one.seconds * scale, "i-function", name, took(one.seconds))
        at = x
        for time in one.times:
            wide = (time.seconds or 0.0) * scale
            group = groups.get((one.name, one.file, one.line, time.category or ""))
            parts += _compilation(at, wide, name, time, group, traced.get(time.id or ""))
            at += wide
        x += one.seconds * scale
    used = {phase for one in functions for time in one.times for phase in time.phase_seconds}
    kinds = [("i-first", "compiled"), ("i-again", "recompiled")]
    kinds += [(phase, phase) for phase in PHASES if phase in used]
    kerneled = any(time.slowest_kernels for one in functions for time in one.times)
    kinds += [("i-kernel", "slowest kernels (several compile at a time)")] if kerneled else []
    key, height = _key(kinds, (3 + kerneled) * _BLOCK + 22)
    words = "Compile time by function, compilation, phase and kernel"
    return _svg(height, words, [*parts, *key])


def _compilation(
    x: float, wide: float, name: str, time: Priced, group: int | None, traced: str | None
) -> Iterator[Markup]:
    """One compilation, its phases below it, and its slowest kernels below them."""
    step = "" if time.step is None else f", step {time.step + 1}"
    why = time.plain or time.reason or time.category
    words = f"{name}{step}, {took(time.seconds or 0.0)}"
    words += f"; recompiled: {why}" if why else ""
    again = time.category is not None
    label = (why or "recompiled") if again else "first"
    plain = label.replace("`", "")
    block = _block(x, _BLOCK, wide, "i-again" if again else "i-first", plain, words)
    yield _linked(f"#recompiles-{group}" if again and group is not None else None, block)
    phases = [(one, spent) for one in PHASES if (spent := time.phase_seconds.get(one))]
    whole = sum(seconds for _, seconds in phases)
    bars, at, within = list[Markup](), x, (x, wide)
    for phase, seconds in phases:
        part = wide * seconds / whole
        words = f"{name}{step}: {phase} {took(seconds)}"
        bars.append(_bar(at, 2 * _BLOCK, max(0.5, part), _BLOCK - 2, phase, words))
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


def _block(x: float, y: float, wide: float, kind: str, label: str, title: str) -> Iterator[Markup]:
    """A bar, with its label if that fits."""
    yield _bar(x, y, max(0.5, wide - 1), _BLOCK - 2, kind, f"{label}: {title}")
    room = int((wide - 8) / _SIGN)
    if room >= _LEAST_LABEL:
        shown = label if len(label) <= room else f"{label[: room - 1]}…"
        yield Markup('<text class="{}-text" x="{:.1f}" y="{}">{}</text>').format(
            kind, x + 4, y + 17, shown
        )


def _axis(seconds: float, scale: float, y: int) -> Iterator[Markup]:
    yield Markup('<line class="axis" x1="{}" y1="{y}" x2="{}" y2="{y}"/>').format(
        _LABEL, _WIDTH, y=y + 2
    )
    for at in ticks(seconds):
        anchor = "end" if at * scale > _EDGE * (_WIDTH - _LABEL) else "start"
        yield Markup('<text class="quiet" x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
            _LABEL + at * scale, y + 16, anchor, f"{at:g} s"
        )


def ticks(upto: float, most: int = 6) -> list[float]:
    """Round numbers from 0 to ``upto``."""
    step = 10.0**-3
    while True:
        for times in (1, 2, 5):
            if upto / (step * times) <= most:
                count = int(upto / (step * times))
                return [round(at * step * times, 6) for at in range(count + 1)]
        step *= 10


def _key(entries: Sequence[tuple[str, str]], y: int) -> tuple[list[Markup], int]:
    """The legend in as many lines as it needs, and its lower end."""
    parts, x = [], 0.0
    for kind, words in entries:
        wide = 34 + _SIGN * len(words)
        if x and x + wide > _WIDTH:
            x, y = 0.0, y + _LINE
        parts.append(_bar(x, y - 10, 11, 11, kind, words))
        parts.append(Markup('<text x="{:.1f}" y="{}">{}</text>').format(x + 17, y, words))
        x += wide
    return parts, y + 8


def _bar(x: float, y: float, wide: float, high: float, kind: str, title: str) -> Markup:
    return Markup(
        '<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"><title>{}</title></rect>'
    ).format(kind, x, y, wide, high, title)


def _svg(height: int, words: str, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, height, words, Markup("\n").join(parts)
    )


def samples(account: RunSummary, rank: int | None) -> list[tuple[str, Markup]]:
    """Time series from a daemon: steps of the rank and its GPUs' power; empty without a daemon.

    Slower periods are shaded.
    """
    summary = next((one for one in account.ranks if one.rank == rank), None)
    of_rank = summary.samples if summary else None
    slower = (summary.answer.get("slower_periods") or ()) if summary else ()
    wanted: list[tuple[str, Samples | None, str]] = [
        (f"Length of a step of rank {rank}; shaded: compilation, by phase", of_rank, "step_seconds")
    ]
    for at, (_, seen) in enumerate(sorted(account.gpu_samples.items())):
        wanted.append((f"Power of GPU {at}", seen, "power_watts"))
    drawn = ((name, _plot(name, seen, column, slower)) for name, seen, column in wanted if seen)
    return [(name, chart) for name, chart in drawn if chart is not None]


def _plot(
    name: str, seen: Samples, column: str, slower: Sequence[Mapping[str, Any]]
) -> Markup | None:
    if column not in seen.columns:
        return None
    known = [value for curve in _curves(seen, column) for _, value in curve]
    if len(known) < 2 or not max(known):
        return None
    begin, top = seen.epochs[0], float(max(known))
    seconds = max(seen.epochs[-1] - begin, seen.seconds)
    scale, high = (_WIDTH - _LABEL) / seconds, _PLOT / top
    parts = [
        Markup('<text class="quiet" x="{}" y="{:.0f}" text-anchor="end">{}</text>').format(
            _LABEL - 8, max(12.0, _PLOT * (1 - share)), _words(column, top * share)
        )
        for share in (1.0, 0.5, 0.0)
    ]
    parts += [
        _bar(
            _LABEL + (from_epoch - begin) * scale,
            0,
            (until_epoch - from_epoch) * scale,
            _PLOT,
            "slower",
            f"slower than before {slower_period(one)}",
        )
        for one in slower
        for from_epoch, until_epoch in _within(one, begin, begin + seconds)
    ]
    phases = seen.columns.get("phase", ())
    for from_epoch, until_epoch, phase in _phases(seen.epochs, phases, seen.seconds):
        x, wide = _LABEL + max(0.0, from_epoch - begin) * scale, (until_epoch - from_epoch) * scale
        parts.append(_bar(x, 0, max(0.75, wide), _PLOT, "compiles", f"compiling, {phase}"))
        parts.append(_bar(x, 0, max(0.75, wide), _STRIP, phase, f"compiling, {phase}"))
    for curve in _curves(seen, column):
        points = " ".join(
            f"{_LABEL + (x - begin) * scale:.1f},{_PLOT - y * high:.1f}" for x, y in curve
        )
        parts.append(Markup('<polyline class="curve" points="{}"/>').format(points))
    return _svg(_PLOT + 24, str(escape(name)), [*parts, *_axis(seconds, scale, _PLOT)])


def _words(column: str, value: float) -> str:
    if not value:
        return "0"
    return step_length(value) if column == "step_seconds" else f"{value:.3g} W"


def _within(period: Mapping[str, Any], begin: float, end: float) -> Iterator[tuple[float, float]]:
    """The part of a period between two moments; none if its begin is not known."""
    if period["began_at"] is None:
        return
    began, ended = max(begin, period["began_at"]), min(end, period["ended_at"] or end)
    if began < ended:
        yield began, ended


def _phases(
    epochs: Sequence[float], phases: Sequence[float | str | None], seconds: float
) -> Iterator[tuple[float, float, str]]:
    """Intervals of one phase: begin, end, phase."""
    began: tuple[float, str] | None = None
    last = 0.0
    for at, phase in zip(epochs, phases, strict=False):
        known = phase if isinstance(phase, str) and phase in PHASES else None
        if began and known != began[1]:
            yield began[0], last, began[1]
            began = None
        if known and not began:
            began = at - seconds, known
        last = at
    if began:
        yield began[0], last, began[1]


def _curves(seen: Samples, column: str) -> Iterator[list[tuple[float, float]]]:
    """Continuous pieces without gaps."""
    stretch: list[tuple[float, float]] = []
    values = seen.columns[column]
    # a step with compile activity does not show the speed
    phases = seen.columns.get("phase") if column == "step_seconds" else None
    for at, value, phase in zip(seen.epochs, values, phases or [None] * len(values), strict=True):
        if isinstance(value, int | float) and phase is None:
            stretch.append((at, float(value)))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch
