"""The compiler's time in a terminal: a bar of letters for each function. Pure.

The time axis is the compiler's own clock, so compilations follow each other without gaps: an hour
of clean steps between two of them would hide both. Phases within a compilation are in their usual
order, because their durations are known and their begins are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from warmwatch.shared.phrases import short_place, took
from warmwatch_monitor.commands.report.parts import Function, Priced, Report
from warmwatch_monitor.model import PHASES
from warmwatch_monitor.output.states import PHASE_STYLES

_MOST = 12  # functions; the others share a bar
_OTHER = "other"
# a letter and a colour for each phase
_LETTERS = {"kernel_compile": "k", "autotune": "t", "cudagraph": "g", "outside": "x"}
_SIGNS = {name: (_LETTERS.get(name, name[0]), style) for name, style in PHASE_STYLES.items()}
_LABEL = 22
_Span = tuple[str, float, float]  # a phase, its begin and its end on the compiler's clock


def timeline(report: Report, width: int) -> list[Text]:
    """The bars, the most expensive function first, and the key: no colour is needed."""
    spans: dict[tuple[object, ...], list[_Span]] = {}
    clock, compiled = 0.0, (priced for each in report.functions for priced in each.times)
    for compilation in sorted(compiled, key=lambda item: item.began):
        for phase, seconds in _phases(compilation):
            spans.setdefault((compilation.name, compilation.file, compilation.line), []).append(
                (phase, clock, clock + seconds)
            )
            clock += seconds
    if not clock:
        return []
    names = Counter(_named(function) for function in report.functions)
    rows = [
        (
            _named(function, placed=names[_named(function)] > 1),
            spans.get((function.name, function.file, function.line), []),
        )
        for function in report.functions
    ]
    rest = [span for _, result in rows[_MOST:] for span in result]
    rows = [*rows[:_MOST], *([("others", rest)] if rest else [])]
    room = max(20, width - _LABEL - 3)
    bars = [(name, list(_bar(result, clock, room))) for name, result in rows]
    lines = [Text.assemble(f"  {name:{_LABEL}} ", *bar) for name, bar in bars]
    drawn = {sign for _, bar in bars for sign, _ in bar}  # a short phase may have no character
    key = ", ".join(f"{sign} {name}" for name, (sign, _) in _SIGNS.items() if sign in drawn)
    end = f"0 s{took(clock):>{room - 3}}"
    return [*lines, Text(f"  {'':{_LABEL}} {end}", style="dim"), Text(f"  {key}", style="dim")]


def _named(function: Function, *, placed: bool = False) -> str:
    """``placed``: with its line, because another function has the same name."""
    name = short_place(function.name, function.file) if function.name else "-"
    if placed and function.line is not None:
        name = f"{name} ({function.file}:{function.line})"
    return name if len(name) <= _LABEL else f"...{name[-(_LABEL - 3) :]}"


def _phases(compilation: Priced) -> list[tuple[str, float]]:
    pairs = [
        (name, compilation.phase_seconds[name])
        for name in PHASES
        if compilation.phase_seconds.get(name)
    ]
    rest = (compilation.seconds or 0.0) - sum(seconds for _, seconds in pairs)
    return [*pairs, (_OTHER, rest)] if not pairs and rest > 0 else pairs


def _bar(spans: Sequence[_Span], seconds: float, room: int) -> Iterator[tuple[str, str]]:
    """For each character, the phase that fills most of it; shorter phases are invisible."""
    for place in range(room):
        begin, end = place * seconds / room, (place + 1) * seconds / room
        filled: dict[str, float] = {}
        for phase, since, until in spans:
            within = min(end, until) - max(begin, since)
            if within > 0:
                filled[phase] = filled.get(phase, 0.0) + within
        if not filled:
            yield ".", "dim"
        else:
            yield _SIGNS.get(max(filled, key=lambda phase: filled[phase]), _SIGNS[_OTHER])
