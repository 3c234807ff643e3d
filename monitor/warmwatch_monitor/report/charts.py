"""A report's charts as SVG, without scripts, also for paper. Pure.

Colours are classes of the page's style sheet. Every text passes ``escape``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from warmwatch_monitor.model import PHASES
from warmwatch_monitor.model.run_summary import RunSummary, Samples
from warmwatch_monitor.output.amounts import percent, took
from warmwatch_monitor.output.wording import slower_period
from warmwatch_monitor.report import goodput as shares
from warmwatch_monitor.report.parts import Report
from warmwatch_monitor.report.strips import Strip, labelled, strips, whole

_WIDTH, _LABEL, _ROW, _LINE = 900, 190, 22, 20
_LONGEST = 24
_PLOT = 110
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
_SIGN = 8.0  # places that a letter takes, and more


def goodput(report: Report) -> Markup | None:
    """One bar: what the run's time went to."""
    if report.goodput is None:
        return None
    parts, x = [], 0.0
    told = [one for one in report.goodput.shares if one.ratio > 0]
    for one in told:
        wide = one.ratio * _WIDTH
        said = f"{one.name}: {took(one.seconds)}, {percent(one.ratio)}"
        parts.append(_bar(x, 0, wide, 26, _CLASSES[one.name], said))
        x += wide
    key, height = _key(
        [(_CLASSES[one.name], f"{one.name} {percent(one.ratio)}") for one in told], 46
    )
    return _svg(height, "What the run's time went to", [*parts, *key])


def timeline(report: Report) -> Markup | None:
    """A bar for each function and phase, on the compiler's own clock."""
    rows = strips(report)
    seconds = whole(rows)
    if not seconds:
        return None
    scale = (_WIDTH - _LABEL) / seconds
    parts = [part for at, row in enumerate(rows) for part in _strip(row, at * _ROW, scale)]
    bottom = len(rows) * _ROW
    parts += _axis(seconds, scale, bottom)
    used = {piece.phase for row in rows for piece in row.pieces}
    key, height = _key([(name, name) for name in PHASES if name in used], bottom + 38)
    words = "Compile time by function and phase, one compilation after another"
    return _svg(height, words, [*parts, *key])


def _strip(row: Strip, y: int, scale: float) -> Iterator[Markup]:
    name = "others" if row.function is None else labelled(row.function, "(unknown)")
    shown = name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
    yield Markup('<text x="0" y="{}">{}<title>{}</title></text>').format(y + 15, shown, name)
    for piece in row.pieces:
        step = "" if piece.of.step is None else f", step {piece.of.step + 1}"
        why = piece.of.plain or piece.of.category
        said = f"{name}{step}: {piece.phase} {took(piece.end - piece.begin)}"
        said += f"; compiled again: {why}" if why else ""
        wide = max(0.75, (piece.end - piece.begin) * scale)
        yield _bar(_LABEL + piece.begin * scale, y + 3, wide, _ROW - 6, piece.phase, said)


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
    """Coloured squares with words, in as many lines as they need; and where they end."""
    parts, x = [], 0.0
    for kind, words in entries:
        wide = 34 + _SIGN * len(words)
        if x and x + wide > _WIDTH:
            x, y = 0.0, y + _LINE
        parts.append(_bar(x, y - 10, 11, 11, kind, words))
        parts.append(Markup('<text x="{:.1f}" y="{}">{}</text>').format(x + 17, y, words))
        x += wide
    return parts, y + 8


def _bar(x: float, y: float, wide: float, high: float, kind: str, said: str) -> Markup:
    return Markup(
        '<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"><title>{}</title></rect>'
    ).format(kind, x, y, wide, high, said)


def _svg(height: int, words: str, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, height, words, Markup("\n").join(parts)
    )


def samples(account: RunSummary, rank: int | None) -> list[tuple[str, Markup]]:
    """What a daemon saw as time went: steps of the rank, and its GPUs' power; none without one.

    The times in which the rank was slower than before are shaded.
    """
    summary = next((one for one in account.ranks if one.rank == rank), None)
    of_rank = summary.samples if summary else None
    slower = (summary.answer.get("slower_periods") or ()) if summary else ()
    wanted: list[tuple[str, Samples | None, str]] = [
        (f"Length of a step of rank {rank}, seconds", of_rank, "step_seconds")
    ]
    for at, (_, seen) in enumerate(sorted(account.gpu_samples.items())):
        wanted.append((f"Power of GPU {at}, watts", seen, "power_watts"))
    drawn = ((name, _plot(name, seen, column, slower)) for name, seen, column in wanted if seen)
    return [(name, chart) for name, chart in drawn if chart is not None]


def _plot(
    name: str, seen: Samples, column: str, slower: Sequence[Mapping[str, Any]]
) -> Markup | None:
    values = seen.columns.get(column, ())
    known = [value for value in values if isinstance(value, int | float)]
    if len(known) < 2 or not max(known):
        return None
    begin, top = seen.epochs[0], float(max(known))
    seconds = max(seen.epochs[-1] - begin, seen.seconds)
    scale, high = (_WIDTH - _LABEL) / seconds, _PLOT / top
    parts = [
        Markup('<text class="quiet" x="{}" y="12" text-anchor="end">{:.3g}</text>').format(
            _LABEL - 8, top
        )
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
    for curve in _curves(seen, column):
        points = " ".join(
            f"{_LABEL + (x - begin) * scale:.1f},{_PLOT - y * high:.1f}" for x, y in curve
        )
        parts.append(Markup('<polyline class="curve" points="{}"/>').format(points))
    return _svg(_PLOT + 24, str(escape(name)), [*parts, *_axis(seconds, scale, _PLOT)])


def _within(period: Mapping[str, Any], begin: float, end: float) -> Iterator[tuple[float, float]]:
    """The part of a period between two moments; one whose begin nobody saw has none."""
    if period["began_at"] is None:
        return
    began, ended = max(begin, period["began_at"]), min(end, period["ended_at"] or end)
    if began < ended:
        yield began, ended


def _curves(seen: Samples, column: str) -> Iterator[list[tuple[float, float]]]:
    """Stretches of what is known: a gap is none of them."""
    stretch: list[tuple[float, float]] = []
    for at, value in zip(seen.epochs, seen.columns[column], strict=True):
        if isinstance(value, int | float):
            stretch.append((at, float(value)))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch
