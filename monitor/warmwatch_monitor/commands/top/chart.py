"""Charts of measurements over time in block characters, with compile intervals shaded. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from rich.text import Text

from warmwatch.shared.phrases import duration
from warmwatch_monitor.commands.top.history import Point, Span

GUTTER = 16  # columns left of the plots, for names and values
_BLOCKS = " ▁▂▃▄▅▆▇█"
SHADE = "░"
_SPREAD_VALUES = 3  # from so many on a plot shows minimum and maximum
_USUAL_TIMES = 2.5  # a longer time between two points than usual is a gap
_SHADED, _BAR, _BAR_SHADED = "yellow", "cyan", "yellow"


class Series(NamedTuple):
    """What one plot shows.

    Attributes:
        name: of the figure. points: its values. words: formats a value.
        most: the top of the scale if it is known beforehand.
        peaks: whether a column shows the maximum of its points, or their mean.
        now: the present value, if it is another figure than the last point.
    """

    name: str
    points: Sequence[Point]
    words: Callable[[float], str]
    most: float | None = None
    peaks: bool = False
    now: float | None = None


class Window(NamedTuple):
    """The time range shown: ``seconds`` up to ``until``."""

    until: float
    seconds: float

    def column(self, at: float, columns: int) -> int:
        """The column of ``at``; negative or ``columns`` if outside."""
        place = (at - self.until + self.seconds) / self.seconds * columns
        return min(int(place // 1), columns - 1 if at <= self.until else columns)


def chart(
    series: Series, spans: Sequence[Span], window: Window, width: int, height: int
) -> list[Text]:
    """``height`` lines of ``width`` characters. Gaps are blank."""
    columns = max(1, width - GUTTER)
    values = _folded(series, window, columns)
    shaded = _shaded(spans, window, columns)
    top = series.most or _top(values, shaded)
    gutter = [series.name, _present(series)]
    if series.most and height > 2:
        gutter.append(f"of {series.words(series.most)}")
    gutter += _spread(series, window)
    drawn = []
    for row in range(height):
        line = Text(f"{gutter[row] if row < len(gutter) else '':<{GUTTER}.{GUTTER - 1}}")
        line.stylize("bold" if row < 2 else "dim")
        for value, shade in zip(values, shaded, strict=True):
            line.append(*_cell(value, shade, top, height - 1 - row, height))
        drawn.append(line)
    return drawn


def _present(series: Series) -> str:
    if not series.points:
        return "none in view"
    return series.words(series.now) if series.now else f"last {series.words(series.points[-1][1])}"


def spark(points: Sequence[Point], spans: Sequence[Span], window: Window, columns: int) -> Text:
    """A chart of one line, without a name. It stands upright also in a reversed row."""
    values = _folded(Series("", points, duration, peaks=True), window, columns)
    shaded = _shaded(spans, window, columns)
    top = _top(values, shaded)
    line = Text(no_wrap=True, style="not reverse")
    for value, shade in zip(values, shaded, strict=True):
        line.append(*_cell(value, shade, top, 0, 1))
    return line


def axis(window: Window, width: int, spans: Sequence[Span]) -> Text:
    """The line below the plots: times at both ends and in the middle, and a key between them."""
    began, half = (f"{duration(window.seconds / part)} ago" for part in (1, 2))
    shaded = any(ended > window.until - window.seconds for _, ended in spans)
    key = f"{SHADE} compiling" if shaded else ""
    columns = max(0, width - GUTTER)
    middle = (columns - len(half)) // 2
    if middle < len(began) + len(key) + 4:
        half, middle = "now", columns - len("now")
    line = began + f"{key:^{max(0, middle - len(began))}}" + half
    line += f"{'now':>{max(0, columns - len(line))}}" if half != "now" else ""
    return Text(" " * GUTTER + line, style="dim")


def _folded(series: Series, window: Window, columns: int) -> list[float | None]:
    groups: list[list[float]] = [[] for _ in range(columns)]
    for at, value in series.points:
        if 0 <= (place := window.column(at, columns)) < columns:
            groups[place].append(value)
    fold = max if series.peaks else fmean
    values = [fold(values) if values else None for values in groups]
    for first, last, value in _between(series.points, window, columns):
        values[first:last] = [value if number is None else number for number in values[first:last]]
    return values


def _between(
    points: Sequence[Point], window: Window, columns: int
) -> Iterator[tuple[int, int, float]]:
    """Columns between two consecutive points without a gap, with the value of the first.

    Fills columns that are shorter than the poll interval; otherwise the plot would be a comb.
    """
    gaps = sorted(after[0] - before[0] for before, after in pairwise(points))
    usual = gaps[(len(gaps) - 1) // 2] if gaps else 0.0
    for before, after in pairwise(points):
        if after[0] - before[0] <= _USUAL_TIMES * usual:
            first, last = window.column(before[0], columns), window.column(after[0], columns)
            yield max(0, first), max(0, min(last, columns)), before[1]


def _shaded(spans: Sequence[Span], window: Window, columns: int) -> list[bool]:
    shaded = [False] * columns
    for began, ended in spans:
        first, last = window.column(began, columns), window.column(ended, columns)
        for place in range(max(0, first), min(columns - 1, last) + 1):
            shaded[place] = True
    return shaded


def _top(values: Sequence[float | None], shaded: Sequence[bool]) -> float | None:
    """The maximum outside of compile intervals, whose peaks would flatten the rest."""
    numbers = [value for value in values if value is not None]
    clean = [v for v, shade in zip(values, shaded, strict=True) if v is not None and not shade]
    return max(clean or numbers, default=None)


def _spread(series: Series, window: Window) -> Iterator[str]:
    """Minimum and maximum of the points in the window.

    No median: it would be that of the polls, and the table has that of the steps.
    """
    shown = [value for at, value in series.points if at > window.until - window.seconds]
    if len(shown) >= _SPREAD_VALUES:
        yield f"min {series.words(min(shown))}"
        yield f"max {series.words(max(shown))}"


def _cell(
    value: float | None, shade: bool, top: float | None, row: int, height: int
) -> tuple[str, str]:
    """One character; ``row`` counts from the bottom."""
    if value is not None and top is not None:
        eighths = max(1, round(value / top * height * 8)) if top > 0 else 1
        filled = min(8, max(0, eighths - row * 8))
        if filled:
            return _BLOCKS[filled], _BAR_SHADED if shade else _BAR
    return (SHADE, _SHADED) if shade and row == 0 else (" ", "")
