"""A report in about ten lines: sentence, bar of the time, slowdown, cost, remedies. Pure.

The timeline of ``-v`` has a bar of letters for each function. Its axis is the compiler's own clock,
so compilations follow each other without gaps: an hour of clean steps between two of them would
hide both. Phases within a compilation are in their usual order, because their durations are known
and their begins are not.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import fill

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from warmwatch.shared.phrases import counted, one_line, short_place, took
from warmwatch.shared.values import PHASES
from warmwatch_monitor.commands.report import goodput
from warmwatch_monitor.commands.report.parts import Function, Priced, Remedy, Report
from warmwatch_monitor.commands.report.wording import answer, remedy_head
from warmwatch_monitor.commands.report.wording_compilations import compilations, failure
from warmwatch_monitor.output.amounts import energy, percent, slower_period
from warmwatch_monitor.output.summary import PHASE_STYLES, STYLES

_MOST = 3  # remedies
_LONGEST = 240  # characters of what one is about
_WIDEST = 100  # columns of the bar
# a character and a colour for each share: the characters differ without colours too
SIGNS = {
    goodput.CLEAN: ("█", "green"),
    goodput.DATA: ("d", "yellow"),
    goodput.GAPS: ("_", "yellow"),
    goodput.STALLS: ("!", "bold red"),
    goodput.BEFORE: ("·", "bright_black"),
    goodput.WARMUP: ("▒", "bright_yellow"),
    goodput.LATER: ("R", "bold magenta"),
    goodput.EVALUATION: ("E", "cyan"),
    goodput.SAVING: ("S", "blue"),
    goodput.CELLS: ("c", "bright_black"),
    goodput.AFTER: (":", "bright_black"),
    goodput.NOTHING: ("?", "bright_black"),
}


def brief(report: Report, width: int, called: str) -> Iterator[RenderableType]:
    """The lines, each for ``rich`` to wrap at ``width``; ``called``: a name for this start."""
    yield Text(answer(report), style=STYLES.get(report.state, "bold"))
    for warning in report.doubts:
        yield Text(f"Note: {warning}.", style="yellow")
    if ended := failure(report):
        yield from (Text(item.words) for item in ended.items)
    yield from _bar(report, width)
    if report.slower:
        worst = max(report.slower, key=lambda period: period.ratio)
        yield Text(f"Slower than before {slower_period(worst)}.", style="yellow")
    yield from _cost(report)
    for remedy in report.do[:_MOST]:
        yield from _remedy(remedy, width)
    yield _next(report, called)


def _bar(report: Report, width: int) -> Iterator[Text]:
    """One bar of the shares, and the key to it, whose lines end between two shares."""
    goodput = report.goodput
    shares = [item for item in goodput.shares if item.ratio > 0] if goodput else []
    if goodput is None or not shares:
        return
    columns, bar = min(width, _WIDEST), Text()
    filled = [max(1, round(item.ratio * columns)) for item in shares]
    longest = filled.index(max(filled))  # a share that rounds to 0 takes a column from it
    filled[longest] = max(1, filled[longest] + columns - sum(filled))
    keys = [Text(f"{took(goodput.seconds)}{' so far' if report.living else ''}: ")]
    for share, count in zip(shares, filled, strict=True):
        sign, style = SIGNS[share.name]
        bar.append(sign * count, style=style)
        end = "" if share is shares[-1] else ","
        part = Text.assemble((sign, style), f" {share.name} {percent(share.ratio)}{end}")
        if len(keys[-1]) + len(part) > width:
            keys.append(Text())
        keys[-1].append_text(part).append(" ")
    yield from (bar, *keys)


def _cost(report: Report) -> Iterator[Text]:
    if not report.costs:
        return
    whole = report.costs[-1]
    text = f"Compiling took {took(report.compile_seconds)}"
    if report.compilations:
        text += f" in {compilations(report)}"
        if report.recompiles:
            text += f"; {counted(report.recompiles, 'recompile')}"
            text += ", the last one unfinished" * any(one.unfinished for one in report.recompiled)
    if whole.joules is not None:
        text += f", {'about ' if whole.estimated else ''}{energy(whole.joules)}"
    yield Text(f"{text}.")


def _remedy(remedy: Remedy, width: int) -> Iterator[RenderableType]:
    """Its subject and saving, then the advice."""
    head = Text(f"- {one_line(remedy_head(remedy), _LONGEST)}", style="bold")
    if len(head) + len(remedy.what) + 2 <= width:
        yield head.append(": ", style="not bold").append(remedy.what, style="not bold")
    else:
        yield Text(fill(head.plain, width, subsequent_indent="  "), style="bold")
        yield Padding(Text(remedy.what), (0, 0, 0, 2))


def _next(report: Report, called: str) -> Text:
    shown = shlex.quote(called)  # the name may be another user's choice
    more = len(report.do) - _MOST
    left_out = f" ({more} more to do)" if more > 0 else ""
    text = f"All of it{left_out}: warmwatch report {shown} -v, or --html FILE."
    # by its id: NAME~1 may be a start without steps
    if report.changed is not None and report.changed.run == report.run:
        text += f" The last comparable run: warmwatch compare {report.changed.id} {shown}"
    return Text(text, style="dim")


_MOST_FUNCTIONS = 12  # functions; the others share a bar
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
    rest = [span for _, result in rows[_MOST_FUNCTIONS:] for span in result]
    rows = [*rows[:_MOST_FUNCTIONS], *([("others", rest)] if rest else [])]
    room = max(20, width - _LABEL - 3)
    bars = [(name, list(_letters(result, clock, room))) for name, result in rows]
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


def _letters(spans: Sequence[_Span], seconds: float, room: int) -> Iterator[tuple[str, str]]:
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
